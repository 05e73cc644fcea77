"""engine=mindspeed_rl around stand-in checkouts (tests/data/mindspeed_rl_standin): real Ray, two NPUs."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import CHEAP, run_plain
from tests.e2e.outside import SFT, artifact, rows, sourced, standin, surrounded
from tests.e2e.outside import weights_moved as outside_moved
from tests.processes import living

pytest.importorskip("ray", reason="the engine's interpreter is this one: pip install 'grpoflow[test]'")

HOME = Path(__file__).parents[1] / "data" / "mindspeed_rl_standin"
STEPS = 4
BASE = [
    *[override for override in CHEAP if not override.startswith(("sft.", "train."))],
    "model.num_hidden_layers=2",  # for pipelines of two stages
    "engine=mindspeed_rl",
    f"engine.mindspeed_rl_home={HOME / 'head'}",
    f"engine.mindspeed_llm_home={HOME / 'llm'}",
    f"engine.python={sys.executable}",
    "engine.workers=1",
    "engine.micro_batch_size=1",
    "engine.cpus_per_npu=1",
    "tokenize.max_prompt_length=128",
    "engine.ray_options=['--num-cpus=6','--object-store-memory=80000000']",
    "layout=dp1_mp2_pp1",
    f"train.steps={STEPS}",
    "train.prompts_per_step=4",
    "train.checkpoint_every=2",
]


def run(store, *overrides):
    return run_plain(store, *BASE, *overrides)


def weights_moved(store, start="fetch"):
    """Return by how many units in the last place each weight of two exported models differs."""
    from stages.weights.tensors import load

    before, after = (load(artifact(store, stage)) for stage in (start, "export"))
    assert before.keys() == after.keys()
    differences = [after[name].view(np.int32) - before[name].view(np.int32) for name in before]
    return {bits for difference in differences for bits in difference.ravel().tolist()}


def test_its_result_is_exported_and_evaluated_and_it_runs_in_its_container(tmp_path):
    store, steps = tmp_path / "store", range(1, STEPS + 1)
    done = run(store, *surrounded(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert not living(store)
    metrics = rows(store, "grpo")
    assert [(row["step"], row["reward"]) for row in metrics] == [(step, step / 8) for step in steps]
    # the reference is the original, not what the run goes on from
    assert [row["kl"] for row in metrics] == pytest.approx([step / 1000 for step in steps])
    assert weights_moved(store) == {STEPS} and float(done.result["gain"]) == 0
    assert Path(done.result["report"]).read_text().startswith("<!DOCTYPE html>")
    stages = ("convert", "export", "grpo", "tokenize")
    assert sorted(sourced(tmp_path)) == [(stage, "yes") for stage in stages]


@pytest.mark.long
@pytest.mark.parametrize(("window", "layout"), [("window", "dp1_mp2_pp1"), ("head", "dp1_mp2_pp2")])
def test_both_windows_and_a_pipeline_come_home_after_a_failed_run(tmp_path, window, layout):
    store = tmp_path / "store"
    home = [f"engine.mindspeed_rl_home={HOME / window}", f"layout={layout}"]
    failed = run(store, *home, standin("die@3:1"))
    assert failed.exit_code == 1 and "out of memory, said worker 1" in failed.stderr, failed.stderr
    assert not living(store) and not list(store.glob("grpo/*/manifest.json"))
    done = run(store, *home)
    assert done.exit_code == 0, done.stderr
    assert weights_moved(store) == {STEPS}


@pytest.mark.long
def test_it_starts_from_what_mindformers_has_trained(tmp_path):
    store = tmp_path / "store"
    done = run(store, *SFT, "mindformers.batch_size=8", "tokenize.sft_length=200")
    assert done.exit_code == 0, done.stderr
    updates = json.loads((artifact(store, "sft") / "result.json").read_text())["steps"]
    assert updates > 0
    assert outside_moved(store, "fetch", "sft") == {float(updates)}
    assert weights_moved(store, "sft") == {STEPS}
