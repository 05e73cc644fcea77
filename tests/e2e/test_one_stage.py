"""engine=mindrlhf_one_stage around stand-in checkouts: real msrun, two workers and more."""

import pytest

from tests.e2e.conftest import run_plain
from tests.e2e.outside import BASE, DATA, SFT, artifact, result, rows, standin, weights_moved
from tests.processes import living

pytestmark = pytest.mark.long  # in the default suite: tests/stages/engines/mindrlhf_one_stage
HOME = DATA / "mindrlhf_one_stage_standin" / "2d0e84d"
ONE_STAGE = [*BASE, "engine=mindrlhf_one_stage", f"engine.mindrlhf_home={HOME}", "tokenize.sft_length=200"]


def test_a_failed_run_of_two_layouts_begins_again_after_mindformers(tmp_path):
    store = tmp_path / "store"
    layout = ["layout=dp1_mp2_pp2", "layout.train.micro_batch_num=4"]
    sft = [*SFT, "mindformers.batch_size=32"]  # 96 rows of sft_length=200, twice: 6 updates
    run = [*ONE_STAGE, *sft, *layout]
    failed = run_plain(store, *run, standin("die@5:1"), code=1)
    assert "out of memory, said worker 1" in failed.stderr
    before = {path: path.stat().st_mtime_ns for path in HOME.rglob("*.py")}
    done = run_plain(store, *run, code=0)
    assert not living(store)
    split = artifact(store, "split")
    assert sorted(path.name for path in split.iterdir() if path.is_dir()) == ["generate", "train"]
    # Two generating replicas: 4 batches of 2 prompts a step, but the script counts them as batches of 1.
    output, steps = rows(store, "grpo"), range(1, 25)
    assert [(row["step"], row["reward"]) for row in output] == [(step, step / 128) for step in steps]
    assert (result(store, "grpo")["contract"], result(store, "grpo")["steps"]) == ("2d0e84d", 24)
    assert weights_moved(store) == {6.0 + 24}
    assert float(done.result["gain"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in HOME.rglob("*.py")}
