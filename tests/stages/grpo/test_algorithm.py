import math
from fractions import Fraction

import numpy as np
import pytest

from stages.grpo import algorithm
from stages.grpo.data import Prompts
from stages.grpo.rollout import Completions
from stages.grpo.sampled import Sampled, standard_error
from stages.rewards.score import RewardScores


def random_rewards(seed):
    """Rewards [P, G] in float32 of any magnitude, about half of the groups with equal ones."""
    random = np.random.default_rng(seed)
    P, G = int(random.integers(1, 9)), int(random.integers(2, 33))
    levels = random.normal(size=int(random.integers(2, 5))) * 10 ** random.uniform(-3, 4)
    rewards = random.choice(levels, (P, G))
    equal = random.random(P) < 0.5
    rewards[equal] = rewards[equal, :1]
    return rewards.astype(np.float32)


def expected_advantages(rewards, scale):
    """The definition in exact fractions; the root alone is taken in float64."""
    expected = []
    for group in rewards:
        values = [Fraction(float(value)) for value in group]
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        divisor = math.sqrt(variance) + 1e-4 if scale else 1.0
        expected.append([float(value - mean) / divisor for value in values])
    return np.array(expected)


@pytest.mark.parametrize("scale", [True, False], ids=["grpo", "dr_grpo"])
def test_advantages_equal_exact_ones_and_are_zero_for_equal_rewards(scale):
    for seed in range(200):
        rewards = random_rewards(seed)
        advantages = algorithm.group_advantages(rewards, scale)
        assert advantages.dtype == np.float32
        expected = expected_advantages(rewards, scale)
        np.testing.assert_allclose(advantages, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
        differs = np.array([len(set(group.tolist())) > 1 for group in rewards])
        assert (advantages[~differs] == 0).all(), seed
        np.testing.assert_array_equal((advantages != 0).any(1), differs)
        np.testing.assert_array_equal(algorithm.informative(rewards), differs)
        zero_share = sampled_with(rewards).metrics()["zero_variance_share"]
        assert zero_share == pytest.approx((advantages == 0).all(1).mean())
        size = 1 + seed % len(rewards)
        chosen = algorithm.choose_groups(rewards, size)
        taught = (algorithm.group_advantages(rewards[chosen], scale) != 0).any(1).sum()
        assert taught == min(size, differs.sum()), "dynamic sampling fills up with groups that teach nothing"


@pytest.mark.parametrize("estimator", ["rloo", "dr_grpo", "reinforce_plus_plus"])
def test_other_advantages_equal_exact_ones(estimator):
    for seed in range(100):
        rewards = random_rewards(seed)
        tokens = np.random.default_rng(seed).integers(1, 9, rewards.shape)
        actual = algorithm.advantages(estimator, rewards, True, tokens)
        assert actual.dtype == np.float32
        oracles = {"rloo": others_mean, "dr_grpo": not_divided, "reinforce_plus_plus": whitened}
        expected = oracles[estimator](rewards, tokens)
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
        equal = [len(set(group.tolist())) == 1 for group in rewards]
        if estimator != "reinforce_plus_plus":
            np.testing.assert_array_equal((actual == 0).all(1), equal)
    every = np.full((3, 4), np.float32(0.1))
    assert (algorithm.advantages(estimator, every, True, np.full((3, 4), 7)) == 0).all()


def not_divided(rewards, tokens):
    return expected_advantages(rewards, False)


def others_mean(rewards, tokens):
    """Each reward minus the mean of the others of its group, in exact fractions."""
    groups = [[Fraction(float(value)) for value in group] for group in rewards]
    return np.array([
        [float(value - (sum(group) - value) / (len(group) - 1)) for value in group] for group in groups
    ])  # fmt: skip


def whitened(rewards, tokens):
    """Each token a row with the reward of its completion: a plain mean and deviation over the rows."""
    rows = np.repeat(rewards.ravel().astype(np.float64), tokens.ravel())
    return (rewards.astype(np.float64) - rows.mean()) / np.sqrt(rows.var(ddof=1) + 1e-8)


def sampled_with(rewards):
    """A step with the given rewards [P, G]."""
    P, G = rewards.shape
    ids, lengths = np.zeros((P * G, 1), np.int32), np.ones(P * G, np.int32)
    prompts = Prompts(ids[:P], lengths[:P], [""] * P, [""] * P)
    completions = Completions(ids, lengths, np.zeros(P * G, bool))
    return Sampled(
        prompts, completions, [""] * (P * G), RewardScores({}, {}, {}, {}, total=rewards.reshape(-1))
    )


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
    means = np.array([1.0, 2.0, 4.0, 9.0])  # of groups of one size: the textbook's
    assert standard_error(means * 8, np.full(4, 8)) == pytest.approx(means.std(ddof=1) / 2)


def test_a_step_without_a_counted_token_is_divided_by_one():
    assert algorithm.dapo_divisor(np.zeros((2, 3), np.float32)) == 1
    assert algorithm.dapo_divisor(np.ones((2, 3), np.float32)) == 6
