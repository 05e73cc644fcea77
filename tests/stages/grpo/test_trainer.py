"""The numbers of a step."""

import numpy as np
import pytest

from stages.grpo.sampled import standard_error


def test_standard_error_is_how_far_means_of_groups_spread():
    """4,000 steps of 32 groups, their means and numbers of tokens drawn: how far a step's mean spreads."""
    random = np.random.default_rng(0)
    counts = random.integers(5, 15, (4000, 32)).astype(float)
    sums = counts * random.normal(3.0, 2.0, (4000, 32))
    true = (sums.sum(1) / counts.sum(1)).std()
    actual = [standard_error(*step) for step in zip(sums, counts, strict=True)]
    assert np.mean(np.square(actual)) ** 0.5 == pytest.approx(true, rel=0.05)
    single = standard_error(np.array([5.0, 0.0]), np.array([2.0, 0.0]))  # the other group has no token
    assert single == 0.0


def test_standard_error_of_equal_groups_is_the_textbook_s():
    means = np.array([1.0, 2.0, 4.0, 9.0])
    assert standard_error(means * 8, np.full(4, 8)) == pytest.approx(means.std(ddof=1) / 2)
