"""GRPO by the real verl improves a model that a run of engine=local has trained until sft."""

import re

import pytest

from tests.upstream.verl.product import grpoflow, warm_start

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(5400)]
STEPS, GAIN = 16, 0.1


def test_a_warm_start_gains_accuracy_and_transformers_finds_the_same(interpreter, tmp_path):
    store = tmp_path / "store"
    start = warm_start(tmp_path, store)
    overrides = ["engine=verl", "engine.device=cpu", f"engine.python={interpreter('verl')}"]
    overrides += [f"model.path={start}", f"train.steps={STEPS}", "train.warmup_steps=0", f"store={store}"]
    done = grpoflow(tmp_path, "run", *overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    gain = re.search(r"^result .*gain=(\S+)", done.stdout, re.MULTILINE)
    assert float(gain[1]) >= GAIN
    served = grpoflow(tmp_path, "serve-check", "last", f"store={store}")
    assert served.returncode == 0, served.stdout + served.stderr
    assert "in bfloat16" in served.stdout  # as verl saves; evaluate computes in float32: ties may part
    equal, total = map(int, re.search(r"(\d+) of (\d+) answers equal", served.stdout).groups())
    assert total == 1000 and equal >= 995
