"""What a rehearsal reads out of what a run left."""

import json

import pytest

from stages.engines.mindrlhf.rehearsal import proofs
from stages.engines.mindrlhf.rehearsal.answers import best_answer
from stages.engines.rehearsal import resumed
from stages.models.families import parameter_shapes
from stages.rewards.config import RewardConfig
from stages.weights.names import name_map
from tests.stages.weights.checkpoints import make_model

GOOD = {"reward_min": 0.0, "reward_max": 1.0, "loss": 0.5, "grad_norm": 0.1}
SAME = {**GOOD, "reward_max": 0.0}


def _grpo(directory, *steps, completion="a \\boxed{1}"):
    rows = [{"step": number, **step} for number, step in enumerate(steps, 1)]
    sample = {"prompt": "p", "completion": completion, "solution": "1", "reward": 0, "length": 3}
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "completions.jsonl").write_text(json.dumps({"step": 1, **sample}) + "\n")
    return directory


def _states(listed):
    return {proof.what: proof.state for proof in listed}


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ({**GOOD, "loss": float("nan")}, "loss finite"),
        ({**GOOD, "grad_norm": 0.0}, "gradient norm above 0"),
        ({**GOOD, "grad_norm": float("inf")}, "gradient norm above 0"),
    ],
)
def test_a_bad_step_fails_the_proof(tmp_path, step, what):
    assert _states(proofs.training_proofs(_grpo(tmp_path, GOOD, step), 3, ""))[what] == "failed"


def test_gradients_that_are_not_logged_are_unproven(tmp_path):
    silent = {key: value for key, value in GOOD.items() if key != "grad_norm"}
    result = _states(proofs.training_proofs(_grpo(tmp_path, silent, silent), 3, ""))
    assert result["gradient norm above 0"] == "unproven" and result["loss finite"] == "proven"


@pytest.mark.parametrize(
    ("start", "state"),
    [([0, 2], "proven"), ([0, 10], "proven"), ([1, 0], "proven"), ([0, 1], "failed"), (None, "failed")],
)
def test_it_must_resume_from_the_complete_checkpoint(tmp_path, start, state):
    (tmp_path / "result.json").write_text(json.dumps({"resumed_from": start, "steps": 3}))
    assert resumed(tmp_path, [0, 2]).state == state


SHAPE = make_model(
    hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, intermediate_size=16,
    vocab_size=32,
)  # fmt: skip
PREFIX = "grpo_model_train.policy_model.model."


def _exported(directory, change):
    """An export by torch's own rounding to bfloat16, changed, compared with its checkpoint."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(0)
    shapes = parameter_shapes(SHAPE)
    trained = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    names = name_map(SHAPE)
    exported = {names[name][0]: value.to(torch.bfloat16) for name, value in trained.items()}
    checkpoint = directory / "policy_model_rank_0-1_3.safetensors"
    remaining = {"grpo_model_train.policy_model.kl_loss": torch.zeros(())}
    save_file({**{PREFIX + name: value for name, value in trained.items()}, **remaining}, checkpoint)
    for name in ("start", "hf"):
        (directory / name).mkdir()
    save_file(exported, directory / "start" / "model.safetensors")
    change(exported)
    save_file(exported, directory / "hf" / "model.safetensors")
    result = proofs.export_proofs(checkpoint, directory / "hf", directory / "start", SHAPE)
    return {proof.what: proof for proof in result}


def test_an_export_is_the_trained_weights_rounded_once(tmp_path):
    assert {proof.state for proof in _exported(tmp_path, lambda tensors: None).values()} == {"proven"}


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors["model.norm.weight"].add_(0.125),
        lambda tensors: tensors.pop("model.norm.weight"),
    ],
    ids=["another value", "missing"],
)
def test_an_exported_tensor_that_differs_from_the_trained_tensor_is_named(tmp_path, change):
    proof = _exported(tmp_path, change)["exported bit for bit"]
    assert proof.state == "failed"
    assert "model.norm.weight" in proof.told


@pytest.mark.parametrize(
    ("function", "holds"), [("qwen_accuracy", "\\boxed{18}"), ("format", "<answer>18</answer>")]
)
def test_the_answer_has_the_form_with_the_highest_reward(function, holds):
    assert holds in best_answer("18", RewardConfig((function,), (1.0,), None))
