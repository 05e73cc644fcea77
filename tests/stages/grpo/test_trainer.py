"""The numbers of a step."""

from types import SimpleNamespace

import numpy as np
import pytest

from stages.grpo.sampled import standard_error
from stages.grpo.trainer import Trainer, update_metrics


@pytest.mark.parametrize(
    ("loss", "norm", "kl", "messages"),
    [
        (0.1, 2.0, 0.5, None),
        (0.1, 2.0, 0.6, "the KL to the reference, 0.6, exceeds train.max_kl=0.5"),
        (float("nan"), 2.0, 0.0, "the loss is nan"),
        (0.1, float("inf"), 0.0, "the gradient's norm inf"),
    ],
)
def test_what_shows_that_training_has_diverged(loss, norm, kl, messages):
    """The stage then stops with step, batch and last good checkpoint: test_stage.py."""
    trainer = SimpleNamespace(job=SimpleNamespace(train=SimpleNamespace(max_kl=0.5)))
    problem = Trainer._problem(trainer, loss, norm, kl)
    assert problem is None if messages is None else messages in problem


def test_standard_error_is_how_far_means_of_groups_spread():
    """4,000 steps of 32 groups, their means and numbers of tokens drawn: how far a step's mean spreads."""
    random = np.random.default_rng(0)
    counts = random.integers(5, 15, (4000, 32)).astype(float)
    sums = counts * random.normal(3.0, 2.0, (4000, 32))
    true = (sums.sum(1) / counts.sum(1)).std()
    actual = [standard_error(*step) for step in zip(sums, counts, strict=True)]
    assert np.mean(np.square(actual)) ** 0.5 == pytest.approx(true, rel=0.05)
    alone = standard_error(np.array([5.0, 0.0]), np.array([2.0, 0.0]))  # the other group has no token
    assert alone == 0.0


def test_standard_error_of_equal_groups_is_the_textbook_s():
    means = np.array([1.0, 2.0, 4.0, 9.0])
    assert standard_error(means * 8, np.full(4, 8)) == pytest.approx(means.std(ddof=1) / 2)


def test_sums_of_groups_become_means_over_tokens():
    sums = {"loss": [0.1, 0.2], "kl": [2.0, 6.0], "entropy": [30.0, 10.0], "clip_low": [1.0, 0.0],
            "clip_high": [0.0, 3.0]}  # fmt: skip
    sums = {name: np.array(values) for name, values in sums.items()}
    actual = update_metrics(sums, np.array([10.0, 20.0]))
    assert actual == pytest.approx({
        "loss": 0.3, "kl": 8 / 30, "entropy": 40 / 30, "clip_low_fraction": 1 / 30, "clip_high_fraction": 0.1,
        "clip_fraction": 4 / 30,
        # residuals of 2 and 6 from 10 and 20 tokens of 8/30 each, and of 30 and 10 from those of 40/30
        "kl_stderr": (2 * 2 * (2 / 3) ** 2) ** 0.5 / 30,
        "entropy_stderr": (2 * 2 * (50 / 3) ** 2) ** 0.5 / 30,
    })  # fmt: skip
    nothing = update_metrics(
        dict.fromkeys(sums, np.zeros(2)), np.zeros(2)
    )  # every completion was cut, and those are masked
    assert set(nothing.values()) == {0.0}
