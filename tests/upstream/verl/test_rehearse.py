"""grpoflow rehearse with the real verl."""

import re

import pytest

from tests.upstream.verl.product import grpoflow

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]


def test_a_recipe_for_npus_is_rehearsed_on_a_cpu(interpreter, tmp_path):
    recipe = [
        "engine=verl", f"engine.python={interpreter('verl')}", "model=tiny_qwen3", "layout=dp4_mp1_pp1",
        f"store={tmp_path / 'store'}", "train.warmup_steps=0",
    ]  # fmt: skip
    assert grpoflow(tmp_path, "run", "--until", "fetch", *recipe).returncode == 0
    done = grpoflow(tmp_path, "rehearse", *recipe)
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    assert re.match(r"rehearsal passed proven=6 failed=0 unproven=4 report=", last)
