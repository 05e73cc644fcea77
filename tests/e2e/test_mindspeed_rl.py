"""engine=mindspeed_rl around a mock checkout (tests/data/mindspeed_rl_standin): real Ray, two NPUs."""

from pathlib import Path

import pytest

from tests.e2e import outside
from tests.e2e.conftest import run_plain
from tests.e2e.outside import DATA, SFT, result, rows, sourced, standin, surrounded, weights_moved
from tests.processes import living

pytest.importorskip("ray", reason="the engine's interpreter is this one: pip install 'grpoflow[test]'")

HOME = DATA / "mindspeed_rl_standin" / "checkout"
STEPS = 4
BASE = [
    *outside.BASE, "engine=mindspeed_rl", f"engine.mindspeed_rl_home={HOME}", "engine.workers=1",
    "engine.micro_batch_size=1",
    "engine.cpus_per_npu=1", "engine.ray_options=['--num-cpus=6','--object-store-memory=80000000']",
    "tokenize.max_prompt_length=128", f"train.steps={STEPS}", "train.prompts_per_step=4",
    "train.checkpoint_every=2",
]  # fmt: skip


def test_its_result_is_exported_and_evaluated_and_it_runs_in_its_container(tmp_path):
    store, steps = tmp_path / "store", range(1, STEPS + 1)
    done = run_plain(store, *BASE, *surrounded(tmp_path), code=0)
    assert not living(store)
    metrics = rows(store, "grpo")
    assert [(row["step"], row["reward"]) for row in metrics] == [(step, step / 8) for step in steps]
    # the reference is the original, not what the run goes on from
    assert [row["kl"] for row in metrics] == pytest.approx([step / 1000 for step in steps])
    assert weights_moved(store, bits=True) == {STEPS} and float(done.result["gain"]) == 0
    assert Path(done.result["report"]).read_text().startswith("<!DOCTYPE html>")
    stages = ("convert", "export", "grpo", "tokenize")
    assert sorted(sourced(tmp_path)) == [(stage, "yes") for stage in stages]


@pytest.mark.long
@pytest.mark.parametrize("layout", ["layout=dp1_mp2_pp1", "layout=dp1_mp2_pp2"])
def test_weights_come_home_after_a_failed_run(tmp_path, layout):
    store = tmp_path / "store"
    failed = run_plain(store, *BASE, layout, standin("die@3:1"), code=1)
    assert "out of memory, said worker 1" in failed.stderr
    assert not living(store) and not list(store.glob("grpo/*/manifest.json"))
    run_plain(store, *BASE, layout, code=0)
    assert weights_moved(store, bits=True) == {STEPS}


@pytest.mark.long
def test_it_starts_from_what_mindformers_has_trained(tmp_path):
    store = tmp_path / "store"
    run_plain(store, *BASE, *SFT, "mindformers.batch_size=8", "tokenize.sft_length=200", code=0)
    updates = result(store, "sft")["steps"]
    assert updates > 0 and weights_moved(store, "fetch", "sft") == {float(updates)}
    assert weights_moved(store, "sft", bits=True) == {STEPS}
