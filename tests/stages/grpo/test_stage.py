"""The whole stage in one process: what it may be told beside the plain recipe."""

import json
import os

import numpy as np
import pytest

from launch.errors import ProcessFailed
from stages.grpo.metrics import SCHEMA
from stages.weights.header import read_header
from stages.weights.tensors import load
from tests.stages.grpo.test_workers import ONE, SMALL, metrics, prepare, run


@pytest.mark.slow
def test_dynamic_sampling_validation_and_early_stop(tmp_path):
    overrides = [
        "train.resample_rounds=2", "train.validate_every=1", "train.validation_prompts=8",
        "train.keep_best=true", "train.patience=1",
        "train.completions_every=2", "train.logged_completions=3", "reward.functions=[answer_format]",
        "reward.weights=[1]", "rollout.repetition_penalty=1.3",
    ]  # fmt: skip
    output = run(tmp_path, "grpo", prepare(tmp_path, [*SMALL, *ONE, *overrides]))
    rows = metrics(output)
    # Nothing is ever right, so no group's rewards differ and no check beats the first.
    assert [row["step"] for row in rows] == [1]
    assert rows[0]["sampled_groups"] == 12 and rows[0]["zero_variance_share"] == 1
    assert rows[0]["grad_norm"] == 0
    result = json.loads((output / "result.json").read_text(encoding="utf-8"))
    assert (result["best_step"], result["weights_of_step"], result["best_accuracy"]) == (0, 0, 0.0)
    assert (output / "completions.jsonl").read_text(encoding="utf-8") == ""  # step 2 never came
    assert rows[0]["validation_s"] > 0
    for key in rows[0]:
        assert key in SCHEMA or f"{key.split('/')[0]}/*" in SCHEMA, key


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_training(tmp_path):
    """A rate so large that the first update leaves infinite weights."""
    overrides = ["train.learning_rate=1e38", "train.max_grad_norm=null", "train.weight_decay=1"]
    with pytest.raises(ProcessFailed):
        run(tmp_path, "grpo", prepare(tmp_path, [*SMALL, *ONE, *overrides]))
    log = (tmp_path / "logs" / "stage.log").read_text(encoding="utf-8")
    assert "step 2: the loss is nan" in log and "step_000001" in log
    assert (tmp_path / "work" / "grpo" / "diverged_step_000002.jsonl").is_file()
    assert not list((tmp_path / "grpo").rglob("model.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("sync", [0, 1])
def test_a_reference_that_follows_at_once_is_the_policy_that_sampled(sync, tmp_path):
    overrides = [f"train.ref_model_sync_steps={sync}", "train.ref_model_mixup_alpha=1"]
    rows = metrics(run(tmp_path, "grpo", prepare(tmp_path, [*SMALL, *ONE, *overrides])))
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-6)
    always = {name for name in SCHEMA if "*" not in name and not name.startswith("validation")}
    for row in rows:
        assert always <= row.keys() and {"reward/accuracy", "reward_std/answer_format"} <= row.keys()
        assert row["entropy_stderr"] > 0
    for row in rows[1:]:
        assert abs(row["kl"]) < 1e-6 if sync else row["kl"] > 1e-5


@pytest.mark.slow
def test_divergence_stops_with_step_batch_and_last_good_checkpoint(tmp_path):
    config = prepare(tmp_path, [*SMALL, *ONE, "train.max_kl=1e-6"])
    with pytest.raises(ProcessFailed):
        run(tmp_path, "grpo", config)
    log = (tmp_path / "logs" / "stage.log").read_text(encoding="utf-8")
    assert "step 2: the KL to the reference" in log and "step_000001" in log
    work = tmp_path / "work" / "grpo"
    rows = (work / "diverged_step_000002.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 16 and json.loads(rows[0])["step"] == 2
    assert (work / "checkpoints" / "step_000001" / "state.json").is_file()


@pytest.mark.slow
def test_weights_are_stored_as_param_init_type_says_and_computed_in_float32(tmp_path):
    """bfloat16 between stages halves the files; the numbers of training are the same to the last digit."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        overrides = ["model.torch_dtype=bfloat16", f"model.param_init_type={dtype}", "train.steps=2"]
        config = prepare(tmp_path / dtype, [*SMALL, *ONE, *overrides])
        output = run(tmp_path / dtype, "grpo", config)
        exported = run(tmp_path / dtype, "export", config) / "model.safetensors"
        stored = output / "train" / "rank_0" / "model.safetensors"
        assert {one.dtype for one in read_header(exported).tensors.values()} == {"BF16"}  # as it was fetched
        codes = {one.dtype for one in read_header(stored).tensors.values()}
        assert codes == {{"float32": "F32", "bfloat16": "BF16"}[dtype]}
        found[dtype] = metrics(output), load(stored), exported.read_bytes()
    (rows, exact, exported), (others, rounded, again) = found["float32"], found["bfloat16"]
    for row, other in zip(rows, others, strict=True):
        for key in ("reward", "loss", "kl", "grad_norm", "entropy"):
            assert row[key] == other[key], key
    assert again == exported
    for name, array in exact.items():
        assert np.abs(rounded[name].astype(np.float32) - array).max() <= np.abs(array).max() / 256, name
    assert any((rounded[name].astype(np.float32) != array).any() for name, array in exact.items())


STEP = []


def stumbling(completions, solutions):
    """Fails for every second completion of the second step, and for one of the first."""
    STEP.append(completions)
    if len(STEP) == 3 or (len(STEP) > 16 and len(STEP) % 2):
        raise ValueError(f"stumbled at {completions[0]!r}")
    return [len(completions[0]) / 20]


@pytest.mark.slow
def test_failures_of_a_reward_are_told_at_once_and_too_many_end_the_run(tmp_path):
    own = ["reward.functions=[tests.stages.grpo.test_stage:stumbling]", "reward.weights=[1]"]
    config = prepare(tmp_path, [*SMALL, *ONE, *own])
    with pytest.raises(ProcessFailed):
        run(tmp_path, "grpo", config)
    told = (tmp_path / "warnings.txt").read_text(encoding="utf-8").splitlines()
    assert (
        len(told) == 1 and "no value for 1 of 16 completions of step 1, which count 0: ValueError" in told[0]
    )
    log = (tmp_path / "logs" / "stage.log").read_text(encoding="utf-8")
    assert "failed for 8 of 16 completions of step 2, more than a tenth: ValueError: stumbled at" in log
    rows = metrics(tmp_path / "work" / "grpo")
    assert [row["reward_failures"] for row in rows] == [1.0]


@pytest.mark.long
def test_a_damaged_checkpoint_costs_its_steps_and_changes_nothing(tmp_path):
    config = prepare(tmp_path, [*SMALL, *ONE])
    rows = metrics(run(tmp_path, "grpo", config))
    checkpoints = tmp_path / "work" / "grpo" / "checkpoints"
    with (checkpoints / "step_000002/adam_m/rank_0/model.safetensors").open("r+b") as stream:
        stream.seek(-64, os.SEEK_END)
        stream.write(bytes(64))
    output = run(tmp_path, "grpo", config)
    assert json.loads((output / "result.json").read_text(encoding="utf-8"))["resumed_from"] == 1
    told = (tmp_path / "warnings.txt").read_text(encoding="utf-8").splitlines()
    assert "step_000002 is damaged: adam_m/rank_0/model.safetensors has sha256" in told[0]
    assert told[1] == "going on from step 1"
    for row, other in zip(metrics(output), rows, strict=True):
        for key in ("loss", "reward", "grad_norm", "entropy"):
            assert row[key] == other[key], (row["step"], key)
