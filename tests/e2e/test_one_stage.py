"""engine=mindrlhf_one_stage around stand-in checkouts: real msrun, two workers and more."""

import json

import pytest

from tests.e2e.conftest import run_plain
from tests.e2e.outside import BASE, DATA, SFT, STEPS, artifact, result, rows, standin, weights_moved
from tests.processes import living

pytestmark = pytest.mark.long  # in the default suite: tests/stages/engines/mindrlhf_one_stage
HOME = DATA / "mindrlhf_one_stage_standin" / "2d0e84d"
ONE_STAGE = [*BASE, "engine=mindrlhf_one_stage", f"engine.mindrlhf_home={HOME}", "tokenize.sft_length=200"]


def test_a_failed_run_begins_again_and_its_result_is_exported_and_evaluated(tmp_path):
    store = tmp_path / "store"
    failed = run_plain(store, *ONE_STAGE, standin("die@5:1"))
    assert failed.exit_code == 1
    assert "out of memory, said worker 1" in failed.stderr
    before = {path: path.stat().st_mtime_ns for path in HOME.rglob("*.py")}
    done = run_plain(store, *ONE_STAGE)
    assert done.exit_code == 0, done.stderr
    assert not living(store)
    assert weights_moved(store) == {float(STEPS)}
    output = rows(store, "grpo")
    assert [row["step"] for row in output] == list(range(1, STEPS + 1))
    assert [row["reward"] for row in output] == [step / 128 for step in range(1, STEPS + 1)]
    assert output[3] | {"time_s": 0} == {
        "step": 4, "time_s": 0, "reward": 4 / 128, "completion_characters": 20.5, "loss": 1.25, "lr": 2e-6,
        "overflow": 0.0, "updates": 32.0, "step_s": 1.5 + 32 * 0.5,
    }  # fmt: skip
    assert (result(store, "grpo")["contract"], result(store, "grpo")["steps"]) == ("2d0e84d", STEPS)
    values = json.loads((artifact(store, "grpo") / "configs" / "grpo_config.json").read_text())
    assert (values["num_rollouts"], values["num_generations"], values["epochs"]) == (8, 4, 1)
    assert float(done.result["gain"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in HOME.rglob("*.py")}


def test_two_layouts_and_mindformers_before_it(tmp_path):
    store = tmp_path / "store"
    layout = ["layout=dp1_mp2_pp2", "layout.train.micro_batch_num=4"]
    sft = [*SFT, "mindformers.batch_size=32"]  # 96 rows of sft_length=200, twice: 6 updates
    done = run_plain(store, *ONE_STAGE, *sft, *layout)
    assert done.exit_code == 0, done.stderr
    split = artifact(store, "split")
    assert sorted(path.name for path in split.iterdir() if path.is_dir()) == ["generate", "train"]
    # Two generating replicas: 4 batches of 2 prompts a step, but the script counts them as batches of 1.
    assert len(rows(store, "grpo")) == 24
    assert weights_moved(store) == {6.0 + 24}
