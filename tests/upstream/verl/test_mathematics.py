"""Steps of the real verl on a CPU next to the same steps in plain torch, which uses no code of verl."""

from pathlib import Path

import pytest

from tests.upstream.programs import ask
from tests.upstream.verl.runs import (
    ALGORITHMS,
    BETA,
    EPOCHS,
    GENERATIONS,
    LEARNING_RATE,
    MAX_TOKENS,
    PROMPTS,
    STEPS,
    algorithm,
)

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
ORACLE = Path(__file__).parent / "oracle.py"
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


def recompute(verl, run, name):
    request = {
        "directory": str(run.directory),
        "model": str(verl.data / "model"),
        "algorithm": name,
        "beta": BETA,
        "learning_rate": LEARNING_RATE,
        "steps": STEPS,
        "epochs": EPOCHS,
        "max_tokens": MAX_TOKENS,
    }
    return ask(verl.python, ORACLE, request)


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_loss_gradient_norm_and_weights_equal_plain_torch(verl, trained, name, workers):
    run = trained(name, workers)
    expected = recompute(verl, run, name)
    for metrics, step in zip(run.metrics(), expected["steps"], strict=True):
        measured = {ours: metrics[theirs] for ours, theirs in METRICS.items()}
        assert measured == pytest.approx(step, rel=2e-5, abs=1e-6)
        assert metrics["training/rollout_probs_diff_max"] < 1e-5  # the rollout's log-probabilities
    assert expected["difference"] < 5e-5 < 1e-2 < expected["moved"]
    assert len({score for *_, score in run.completions()[0]}) > 4
    assert all(len(step) == PROMPTS * GENERATIONS for step in run.completions())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_workers_equal_one(trained, name):
    one, two = trained(name, 1), trained(name, 2)
    assert one.completions() == two.completions()
    for ours, theirs in zip(one.metrics(), two.metrics(), strict=True):
        for key in ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm"):
            assert ours[key] == pytest.approx(theirs[key], rel=2e-5, abs=1e-6)


def test_a_repeated_run_is_identical_to_the_last_bit(verl, trained, tmp_path):
    run, repeated = trained("grpo", 1), verl.train(tmp_path, 1, algorithm("grpo"))
    assert repeated.completions() == run.completions()
    assert repeated.shards() == run.shards()
    timeless = [
        [{key: value for key, value in step.items() if "critic" in key or "actor/g" in key} for step in each]
        for each in (run.metrics(), repeated.metrics())
    ]
    assert timeless[0] == timeless[1]
