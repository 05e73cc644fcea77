"""The complete stages in one process: what they may be told beside the plain recipe."""

import json
import shutil
from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from launch.errors import ProcessFailed
from pipeline.config.load import load as compose
from stages.grpo.metrics import SCHEMA
from stages.grpo.sft import batches, reached
from stages.weights.header import read_header
from stages.weights.tensors import load
from tests.pipeline.stage_digests import check
from tests.stages.grpo.test_workers import SINGLE_CARD, SMALL, metrics, prepare, run

STORED = [
    *SMALL, *SINGLE_CARD, "model.torch_dtype=bfloat16", "model.param_init_type=float32", "train.steps=2",
]  # fmt: skip
TRAINED = "grpo/train/rank_0/model.safetensors"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run with the plain recipe, from bfloat16 weights that are stored in float32: its directory."""
    return of_dtype("float32", tmp_path_factory.mktemp("plain"))


def of_dtype(dtype, root):
    config = prepare(root, [*STORED, f"model.param_init_type={dtype}"])
    for stage in ("grpo", "export"):
        run(root, stage, config)
    return root


def train(plain, root, *overrides):
    """Train once more in `root`, from what the plain run began with."""
    shutil.copytree(plain, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("work", "logs"))
    return run(root, "grpo", compose([*STORED, *overrides]))


@pytest.mark.slow
def test_dynamic_sampling_validation_and_early_stop(plain, tmp_path):
    output = train(
        plain, tmp_path, "train.resample_rounds=2", "train.validate_every=1", "train.validation_prompts=8",
        "train.keep_best=true", "train.patience=1", "train.completions_every=2", "train.logged_completions=3",
        "reward.functions=[answer_format]", "reward.weights=[1]", "rollout.repetition_penalty=1.3",
    )  # fmt: skip
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


CALLS = []


def stumbling(completions, solutions):
    """Fail for the third completion of the first step."""
    if len(completions) == 16:
        CALLS.append(completions[2])
    if len(CALLS) == 1 and CALLS[0] in completions:
        raise ValueError(f"stumbled at {CALLS[0]!r}")
    return [len(completion) / 20 for completion in completions]


DIVERGING = {
    "the loss is nan": ["train.learning_rate=1e38", "train.max_grad_norm=null", "train.weight_decay=1"],
    "exceeds train.max_kl=1e-09": ["train.max_kl=1e-9"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "reason", [pytest.param("the loss is nan", marks=pytest.mark.long), "exceeds train.max_kl=1e-09"]
)
def test_training_that_diverges_stops_with_step_batch_and_last_checkpoint(plain, tmp_path, reason):
    reward = ["reward.functions=[tests.stages.grpo.test_stage:stumbling]", "reward.weights=[1]"]
    with pytest.raises(ProcessFailed):
        train(plain, tmp_path, *DIVERGING[reason], *reward)
    log = (tmp_path / "logs" / "stage.log").read_text(encoding="utf-8")
    assert reason in log and "step 2: " in log and "step_000001" in log
    work = tmp_path / "work" / "grpo"
    rows = (work / "diverged_step_000002.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 16 and json.loads(rows[0])["step"] == 2
    assert (work / "checkpoints" / "step_000001" / "state.json").is_file()
    assert not list((tmp_path / "grpo").rglob("model.safetensors"))
    (messages,) = (tmp_path / "warnings.txt").read_text(encoding="utf-8").splitlines()
    assert "no value for 1 of 16 completions of step 1, which count 0: ValueError" in messages
    assert metrics(work)[0]["reward_failures"] == 1.0


@pytest.mark.slow
def test_the_first_check_of_a_resumed_run_belongs_to_the_step_it_resumes_after(plain, tmp_path):
    output = train(
        plain, tmp_path, "train.validate_every=1", "train.validation_prompts=4", "train.keep_best=true",
        "train.checkpoint_every=0", f"train.resume_from={plain}/work/grpo/checkpoints/step_000001",
    )  # fmt: skip
    result = json.loads((output / "result.json").read_text(encoding="utf-8"))
    assert (result["best_step"], result["weights_of_step"], result["resumed_from"]) == (1, 1, 1)
    assert [row["step"] for row in metrics(output)] == [2]
    assert sorted(path.name for path in (tmp_path / "work/grpo/checkpoints").iterdir()) == ["step_000001"]
    assert "no check found a right answer" in (tmp_path / "warnings.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_training_writes_nothing_else_without_its_version(plain):
    check("grpo", plain / "grpo", plain, exact=False)


@pytest.mark.slow
def test_a_reference_that_follows_at_once_is_the_policy_that_sampled(plain, tmp_path):
    sometimes = ("validation", "judge_")  # of runs with train.validate_every, and with reward=judge
    always = {name for name in SCHEMA if "*" not in name and not name.startswith(sometimes)}
    always -= {"skipped_completions", "reference_completions"}  # of runs with train.beta=0
    following = ["train.ref_model_sync_steps=1", "train.ref_model_mixup_alpha=1"]
    runs = metrics(plain / "grpo"), metrics(train(plain, tmp_path, *following))
    for rows in runs:
        assert rows[0]["kl"] == pytest.approx(0, abs=1e-6)
        for row in rows:
            assert always <= row.keys() and {"reward/accuracy", "reward_std/answer_format"} <= row.keys()
            assert row["entropy_stderr"] > 0
    assert runs[0][1]["kl"] > 1e-5 and abs(runs[1][1]["kl"]) < 1e-6


@pytest.mark.slow
def test_weights_are_stored_in_param_init_type_and_computed_in_float32(plain, tmp_path):
    """bfloat16 between stages halves the files; the numbers of training are the same to the last digit."""
    rounded = of_dtype("bfloat16", tmp_path)
    exported = [root / "export/model.safetensors" for root in (plain, rounded)]
    for root, code in ((plain, "F32"), (rounded, "BF16")):
        files = (root / "export/model.safetensors", "BF16"), (root / TRAINED, code)  # exported as fetched
        for file, dtype in files:
            assert {item.dtype for item in read_header(file).tensors.values()} == {dtype}
    for row, second in zip(metrics(plain / "grpo"), metrics(rounded / "grpo"), strict=True):
        for key in ("reward", "loss", "kl", "grad_norm", "entropy"):
            assert row[key] == second[key], key
    assert exported[0].read_bytes() == exported[1].read_bytes()
    exact, near = load(plain / TRAINED), load(rounded / TRAINED)
    for name, array in exact.items():
        assert np.abs(near[name].astype(np.float32) - array).max() <= np.abs(array).max() / 256, name
    assert any((near[name].astype(np.float32) != array).any() for name, array in exact.items())


def test_every_epoch_sees_each_row_at_most_once_in_an_order_that_the_seed_decides():
    order = batches(rows=10, size=3, seed=0)
    epochs = [np.concatenate([next(order) for _ in range(3)]) for _ in range(2)]
    for epoch in epochs:
        assert len(set(epoch)) == 9 and set(epoch) <= set(range(10))
    assert epochs[0].tolist() != epochs[1].tolist()
    first, again, second = (next(batches(100, 50, seed=seed)).tolist() for seed in (1, 1, 2))
    assert first == again != second


def test_a_single_lucky_check_does_not_stop_training():
    config = compose([]).sft
    assert config.stop_accuracy == 0.4 and config.stop_checks == 3
    assert not reached(deque([0.9], maxlen=3), config)
    assert not reached(deque([0.2, 0.4, 0.59], maxlen=3), config)
    assert reached(deque([0.4, 0.5, 0.6], maxlen=3), config)
    assert not reached(deque([1.0, 1.0, 1.0], maxlen=3), replace(config, stop_accuracy=None))


SFT = [
    "model.hidden_size=32", "model.num_hidden_layers=1", "model.intermediate_size=48",
    "dataset.train_rows=96", "dataset.test_rows=8",
    "layout.train.model_parallel=1", "layout.generate.data_parallel=1", "sft.check_prompts=16",
    "sft.batch_size=16", "sft.warmup_steps=2", "sft.check_every=2", "sft.stop_accuracy=null",
    "sft.steps=3", "sft.checkpoint_every=2",
]  # fmt: skip


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_last_bit(tmp_path):
    """Three steps, and what a kill after the checkpoint of step 2 would leave, typed again."""
    config = prepare(tmp_path, SFT)
    output = run(tmp_path, "sft", config)
    expected, weights = metrics(output), (output / "train/rank_0/model.safetensors").read_bytes()
    output = run(tmp_path, "sft", config)  # an empty output; its work directory has the checkpoint
    assert json.loads((output / "result.json").read_text(encoding="utf-8"))["resumed_from"] == 2
    rows = metrics(output)
    keys = ("step", "loss", "grad_norm", "lr", "accuracy_check")
    assert [[row.get(key) for key in keys] for row in rows] == [
        [row.get(key) for key in keys] for row in expected
    ]
    assert len(rows) == 3 and rows[2]["time_s"] > expected[2]["time_s"]  # it was trained again
    assert (output / "train/rank_0/model.safetensors").read_bytes() == weights
