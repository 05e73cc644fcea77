"""grpoflow rehearse with the real AReaL."""

import re

import pytest

from tests.upstream.verl.product import grpoflow

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("mode", "proven", "unproven"), [("sync", 8, 4), ("async", 7, 5)])
def test_a_recipe_for_npus_is_rehearsed_on_a_cpu(interpreter, tmp_path, mode, proven, unproven):
    recipe = [
        "engine=areal", f"engine.python={interpreter('areal')}", "model=tiny_qwen3", "layout=dp4_mp1_pp1",
        f"engine.mode={mode}", f"store={tmp_path / 'store'}", "train.warmup_steps=0",
    ]  # fmt: skip
    assert grpoflow(tmp_path, "run", "--until", "fetch", *recipe).returncode == 0
    done = grpoflow(tmp_path, "rehearse", *recipe)
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    assert re.match(rf"rehearsal passed proven={proven} failed=0 unproven={unproven} report=", last)
