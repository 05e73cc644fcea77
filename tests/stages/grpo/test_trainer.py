"""The numbers of a step."""

import numpy as np
import pytest

from stages.grpo.sampled import standard_error
from stages.grpo.trainer import learned


def test_standard_error_is_how_far_means_of_groups_spread():
    random = np.random.default_rng(0)
    steps = random.normal(3.0, 2.0, (4000, 16))  # 16 groups of a step, each with a mean of its own
    assert np.mean([standard_error(step) ** 2 for step in steps]) ** 0.5 == pytest.approx(
        steps.mean(1).std(), rel=0.05
    )
    assert standard_error(np.array([5.0])) == 0.0


def test_sums_of_groups_become_means_over_tokens():
    by_group = np.array([[0.1, 2.0, 30.0, 1.0, 0.0], [0.2, 6.0, 10.0, 0.0, 3.0]])
    found = learned(by_group, np.array([10.0, 20.0]))
    assert found == pytest.approx({
        "loss": 0.3, "kl": 8 / 30, "entropy": 40 / 30, "clip_low_fraction": 1 / 30, "clip_high_fraction": 0.1,
        "clip_fraction": 4 / 30,
        "kl_stderr": np.std([0.2, 0.3], ddof=1) / 2**0.5, "entropy_stderr": np.std([3, 0.5], ddof=1) / 2**0.5,
    })  # fmt: skip
    nothing = learned(np.zeros((2, 5)), np.zeros(2))  # every completion was cut, and those are masked
    assert set(nothing.values()) == {0.0}
