import numpy as np
import pytest

from stages.grpo.advantage import group_advantages


def test_by_hand():
    rewards = np.array([[1.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5]])
    advantages, zero = group_advantages(rewards, scale=True)
    deviation = np.sqrt(4 * 0.25 / 3)
    np.testing.assert_allclose(
        advantages[0], np.array([0.5, -0.5, -0.5, 0.5]) / (deviation + 1e-4), rtol=1e-6
    )
    assert (advantages[1] == 0).all() and zero == 0.5


def test_without_scaling_only_the_mean_goes():
    advantages, _ = group_advantages(np.array([[3.0, 1.0]]), scale=False)
    np.testing.assert_allclose(advantages, [[1.0, -1.0]])


@pytest.mark.parametrize("scale", [True, False])
def test_adding_a_constant_to_a_group_changes_nothing(scale):
    rewards = np.random.default_rng(0).random((5, 8))
    shifted, _ = group_advantages(rewards + np.arange(5)[:, None], scale)
    np.testing.assert_allclose(shifted, group_advantages(rewards, scale)[0], atol=1e-5)
    np.testing.assert_allclose(shifted.sum(1), 0, atol=1e-5)
