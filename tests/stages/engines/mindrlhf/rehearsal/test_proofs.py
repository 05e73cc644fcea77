"""Proofs of a rehearsal, from the files of a run."""

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
SILENT = {key: value for key, value in GOOD.items() if key != "grad_norm"}
"""A step of 0cd087455."""


def _grpo(directory, *steps, completion="a \\boxed{1}"):
    rows = [{"step": number, **step} for number, step in enumerate(steps, 1)]
    sample = {"prompt": "p", "completion": completion, "solution": "1", "reward": 0, "length": 3}
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "completions.jsonl").write_text(json.dumps({"step": 1, **sample}) + "\n")
    return directory


@pytest.mark.parametrize(
    ("first", "second", "loss", "norm"),
    [
        (GOOD, {**GOOD, "loss": float("nan")}, "failed", "proven"),
        (GOOD, {**GOOD, "grad_norm": 0.0}, "proven", "failed"),
        (GOOD, {**GOOD, "grad_norm": float("inf")}, "proven", "failed"),
        (SILENT, SILENT, "proven", "unproven"),
    ],
)
def test_every_step_needs_a_loss_and_a_gradient(tmp_path, first, second, loss, norm):
    listed = proofs.training_proofs(_grpo(tmp_path, first, second), 3, "")
    states = {proof.what: proof.state for proof in listed}
    assert (states["loss finite"], states["gradient norm above 0"]) == (loss, norm)


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
PREFIX = "grpo_model_train.policy_model."


@pytest.mark.parametrize("damage", ["none", "another value", "missing"])
def test_an_export_is_the_trained_weights_rounded_once(tmp_path, damage):
    """The export is torch's own rounding to bfloat16."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(0)
    shapes, names = parameter_shapes(SHAPE), name_map(SHAPE)
    trained = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    exported = {names[name][0]: value.to(torch.bfloat16) for name, value in trained.items()}
    checkpoint = tmp_path / "policy_model_rank_0-1_3.safetensors"
    saved = {f"{PREFIX}model.{name}": value for name, value in trained.items()}
    save_file({**saved, f"{PREFIX}kl_loss": torch.zeros(())}, checkpoint)
    for directory in ("start", "hf"):
        (tmp_path / directory).mkdir()
    save_file(exported, tmp_path / "start" / "model.safetensors")
    if damage == "another value":
        exported["model.norm.weight"].add_(0.125)
    elif damage == "missing":
        del exported["model.norm.weight"]
    save_file(exported, tmp_path / "hf" / "model.safetensors")
    result = proofs.export_proofs(checkpoint, tmp_path / "hf", tmp_path / "start", SHAPE)
    by_name = {proof.what: proof for proof in result}
    if damage == "none":
        assert {proof.state for proof in by_name.values()} == {"proven"}
    else:
        assert by_name["exported bit for bit"].state == "failed"
        assert "model.norm.weight" in by_name["exported bit for bit"].told


@pytest.mark.parametrize(
    ("function", "holds"), [("qwen_accuracy", "\\boxed{18}"), ("format", "<answer>18</answer>")]
)
def test_the_answer_has_the_form_with_the_highest_reward(function, holds):
    assert holds in best_answer("18", RewardConfig((function,), (1.0,), None))
