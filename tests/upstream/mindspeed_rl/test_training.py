"""train_grpo.py through `grpoflow run` on real Ray, as far as it comes without MSAdapter and an NPU."""

import json
from pathlib import Path

import pytest

from launch.diagnose.failures import failures
from pipeline.cli import main
from pipeline.config.load import load
from pipeline.rehearsal.mindspeed_rl import STOP
from stages.base.context import Context
from stages.fetch.stage import run as fetch
from tests.e2e.conftest import run_plain

pytestmark = pytest.mark.upstream
RECIPE = [
    "model.hidden_size=32", "model.intermediate_size=64", "dataset.train_rows=40", "dataset.test_rows=16",
    "layout=dp1_mp1_pp1", "train.steps=2", "train.checkpoint_every=2", "train.prompts_per_step=4",
    "rollout.num_generations=2", "rollout.max_tokens=64", "tokenize.max_prompt_length=700",
    "engine.micro_batch_size=1", "engine.workers=1", "engine.cpus_per_npu=1",
    "engine.ray_options=['--num-cpus=6','--object-store-memory=80000000','--include-dashboard=false']",
]  # fmt: skip


def assert_stopped_at(stop, logs):
    """Check that the workers reached initialize_megatron, after the dataset was built, and no further."""
    (log,) = logs.glob(".logs/grpo-*/attempt_1/worker_0.log")
    message = log.read_text()
    assert stop in message and "in train\n    actor_worker.wait_all_ref_objs_run_over()" in message


@pytest.mark.timeout(900)
def test_training_stops_at_the_import_of_msadapter_with_a_diagnosis(upstream, tmp_path):
    done = run_plain(tmp_path / "store", *upstream.overrides, *RECIPE)
    assert done.exit_code == 1
    (failure,) = (known for known in failures() if known.name == STOP)
    assert f"diagnosis: {failure.cause}" in done.stderr and f"do: {failure.remedy}" in done.stderr
    assert_stopped_at('transformer/moe/moe_layer_overlap_all2all.py", line 18', tmp_path / "store")
    assert not list((tmp_path / "store").glob("grpo/*/manifest.json"))


@pytest.mark.timeout(900)
def test_a_rehearsal_passes_and_reports_that_training_was_not_rehearsed(upstream, tmp_path, capsys):
    model = tmp_path / "model"
    model.mkdir()
    fetch(Context("fetch", load(RECIPE[:2]).plain(), {}, model, tmp_path, tmp_path / "progress"))
    recipe = [*upstream.overrides, *RECIPE, "model.source=local", f"model.path={model}"]
    recipe.append(f"store={tmp_path / 'store'}")
    assert main(["rehearse", *recipe]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("rehearsal passed proven=4 failed=0 unproven=4 report=")
    report = json.loads((Path(last.rpartition("=")[2]).parent / "report.json").read_text())
    proofs = {(proof["what"], proof["state"]): proof["told"] for proof in report["proofs"]}
    assert "initialize_megatron's beginning" in proofs["train_grpo.py starts", "proven"]
    assert (
        "no iteration was rehearsed: the MindSpore back end runs on MSAdapter"
        in proofs["training", "unproven"]
    )
