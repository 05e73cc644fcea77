import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo.algorithm import grpo


def test_advantages_by_hand():
    rewards = np.array([[1.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5]])
    advantages = grpo.group_advantages(rewards, scale=True)
    deviation = np.sqrt(4 * 0.25 / 3)
    np.testing.assert_allclose(
        advantages[0], np.array([0.5, -0.5, -0.5, 0.5]) / (deviation + 1e-4), rtol=1e-6
    )
    assert (advantages[1] == 0).all()


def test_without_scaling_only_the_mean_goes():
    advantages = grpo.group_advantages(np.array([[3.0, 1.0]]), scale=False)
    np.testing.assert_allclose(advantages, [[1.0, -1.0]])


@pytest.mark.parametrize("scale", [True, False])
def test_adding_a_constant_to_a_group_changes_nothing(scale):
    rewards = np.random.default_rng(0).random((5, 8))
    shifted = grpo.group_advantages(rewards + np.arange(5)[:, None], scale)
    np.testing.assert_allclose(shifted, grpo.group_advantages(rewards, scale), atol=1e-5)
    np.testing.assert_allclose(shifted.sum(1), 0, atol=1e-5)


def test_kl_is_never_negative_and_right_on_average():
    """Over samples of the policy, k3's mean is the divergence itself."""
    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    logs = [Tensor(np.log(share), ms.float32) for share in (reference, policy)]
    values = grpo.kl_k3(*logs, Tensor(np.ones(3), ms.float32)).asnumpy()
    assert (values >= 0).all()
    np.testing.assert_allclose(
        (policy * values).sum(), (policy * np.log(policy / reference)).sum(), rtol=1e-5
    )
