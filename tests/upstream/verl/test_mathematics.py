"""Steps of the real verl on a CPU next to the same steps in plain torch, which uses no code of verl."""

import json
from pathlib import Path

import pytest

from tests.upstream.programs import ask
from tests.upstream.verl.product import (
    BETA,
    EPOCHS,
    GENERATIONS,
    LEARNING_RATE,
    MAX_TOKENS,
    PROMPTS,
    STEPS,
)

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
HERE = Path(__file__).parent
SHIFTED = HERE / "shifted"
ORACLE = HERE / "oracle.py"
ALGORITHMS = {
    "grpo": ("train.loss_type=grpo",),
    "dapo": ("train.loss_type=dapo", "train.epsilon_high=0.28"),
    "dr_grpo": ("train.loss_type=dr_grpo", "train.scale_advantages=false"),
    "gspo": (
        "train.loss_type=grpo", "train.importance_sampling_level=sequence", "train.epsilon_low=3e-4",
        "train.epsilon_high=4e-4",
    ),
}  # fmt: skip
METRICS = {
    "loss": "actor/pg_loss",
    "kl": "actor/kl_loss",
    "norm": "actor/grad_norm",
    "reward": "critic/score/mean",
}
CASES = [
    pytest.param(name, workers, marks=[pytest.mark.core] if (name, workers) == ("grpo", 1) else [])
    for name in ALGORITHMS
    for workers in (1, 2)
]


@pytest.fixture
def run(trained):
    """Return a function: algorithm, workers -> a run."""
    return lambda name, workers: trained(*ALGORITHMS[name], f"layout=dp{workers}_mp1_pp1")


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_loss_gradient_norm_and_weights_equal_plain_torch(verl, run, name, workers):
    made = run(name, workers)
    request = {"artifact": str(made.grpo), "model": str(verl.data / "model"), "algorithm": name, "beta": BETA}
    request |= {"learning_rate": LEARNING_RATE, "steps": STEPS, "epochs": EPOCHS, "max_tokens": MAX_TOKENS}
    expected = ask(verl.python, ORACLE, request)
    for metrics, step in zip(made.metrics(), expected["steps"], strict=True):
        measured = {ours: metrics[theirs] for ours, theirs in METRICS.items()}
        assert measured == pytest.approx({name: step[name] for name in METRICS}, rel=2e-5, abs=1e-6)
        assert metrics["training/rollout_probs_diff_max"] < 1e-5  # the rollout's log-probabilities
    assert expected["difference"] < 5e-5 < 1e-2 < expected["moved"]
    assert len({score for *_, score in made.completions()[0]}) > 4
    assert all(len(step) == PROMPTS * GENERATIONS for step in made.completions())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_workers_equal_one(run, name):
    one, two = run(name, 1), run(name, 2)
    assert one.completions() == two.completions()
    for ours, theirs in zip(one.metrics(), two.metrics(), strict=True):
        for key in ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm"):
            assert ours[key] == pytest.approx(theirs[key], rel=2e-5, abs=1e-6)


CORRECTIONS = {
    "tis": ("dapo", {"kind": "tis", "level": "token", "min": 0.8, "max": 1.2}),
    "tis by sequence": ("grpo", {"kind": "tis", "level": "sequence", "min": 0.5, "max": 1.1}),
    "mis": ("grpo", {"kind": "mis", "level": "token", "min": 0.75, "max": 1.2}),
    "mis by sequence": ("dapo", {"kind": "mis", "level": "sequence", "min": 0.7, "max": 1.6}),
}
"""Loss, and settings of rollout.correction."""
MUTANTS = (None, {"max": 2.0}, {"min": 0.1}, {"level": "sequence"}, {"level": "token"}, {"kind": "tis"})
"""Corrections that differ from the right one, as changes of it; None: without correction."""


@pytest.mark.parametrize("name", CORRECTIONS)
def test_corrected_losses_equal_plain_torch_and_no_mutant(verl, trained, name):
    algorithm, correction = CORRECTIONS[name]
    overrides = [
        f"rollout.correction={correction['kind']}",
        f"rollout.correction_level={correction['level']}",
    ]
    overrides += [f"rollout.correction_max={correction['max']}", f"+engine.env.PYTHONPATH={SHIFTED}"]
    if correction["kind"] == "mis":
        overrides.append(f"rollout.correction_min={correction['min']}")
    made = trained(*ALGORITHMS[algorithm], *overrides)
    request = {"artifact": str(made.grpo), "model": str(verl.data / "model"), "algorithm": algorithm}
    request |= {"learning_rate": LEARNING_RATE, "steps": STEPS, "epochs": EPOCHS, "max_tokens": MAX_TOKENS}
    request |= {"beta": BETA, "correction": correction}
    expected = ask(verl.python, ORACLE, request)
    names = {**METRICS, "weight": "rollout_corr/rollout_is_mean"}
    names |= {"rejected": "rollout_corr/rollout_rs_masked_fraction"} if correction["kind"] == "mis" else {}
    steps = [{name: step[name] for name in names} for step in expected["steps"]]
    measured = [{ours: row[theirs] for ours, theirs in names.items()} for row in made.metrics()]
    for ours, theirs in zip(measured, steps, strict=True):
        assert ours == pytest.approx(theirs, rel=2e-5, abs=1e-6)
    assert expected["difference"] < 5e-5
    rows = [json.loads(line) for line in (made.grpo / "metrics.jsonl").read_text().splitlines()]
    assert all(row["rollout_logprob_diff"] > 1e-2 for row in rows)
    assert "rollout_logprob_diff is above 0.001" in made.warnings()
    for change in MUTANTS:
        mutant = None if change is None else {**correction, **change}
        is_same = mutant == correction or (correction["kind"] == "tis" and change == {"min": 0.1})
        other = ask(verl.python, ORACLE, {**request, "correction": mutant})
        assert (other["difference"] > 1e-4) is not is_same, change
