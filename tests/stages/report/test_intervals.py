"""Margins of shares, against exact probabilities of binomial and multinomial counts."""

import itertools
import math

import pytest
from scipy.stats import binom, chi2, multinomial, norm

from stages.report.headline import (
    differ,
    gain_margin,
    indistinct,
    margin,
    paired_margin,
    quantile,
    tiles,
    wilson,
)


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    # Published: 81 of 263, 15 of 148, 0 of 20, 1 of 29 (Newcombe 1998, table I, method 3).
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_the_published_one(right, of, low, high):
    assert wilson(right / of, of) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("first", [0.0, 0.02, 0.3, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("second", [0.02, 0.5, 1.0])
def test_differences_of_independent_shares_lie_within_the_margin(first, second):
    n, m = 40, 25
    covered = sum(
        binom.pmf(i, n, first) * binom.pmf(j, m, second)
        for i, j in itertools.product(range(n + 1), range(m + 1))
        if abs((i / n - j / m) - (first - second)) <= margin(i / n, j / m, (n, m))
    )
    assert covered > 0.92


@pytest.mark.parametrize(
    ("fixed", "broken"), [(0.0, 0.0), (0.05, 0.05), (0.3, 0.02), (0.5, 0.0), (0.02, 0.9)]
)
def test_differences_of_paired_shares_lie_within_the_margin(fixed, broken):
    n, same = 40, max(0.0, 1 - fixed - broken)
    covered = sum(
        multinomial.pmf([up, down, n - up - down], n, [fixed, broken, same])
        for up, down in itertools.product(range(n + 1), repeat=2)
        if up + down <= n and abs((up - down) / n - (fixed - broken)) <= paired_margin(up, down, n)
    )
    assert covered > 0.92


@pytest.mark.parametrize("comparisons", [1, 2, 19, 999])
def test_several_intervals_hold_at_once(comparisons):
    assert quantile(comparisons) == pytest.approx(norm.isf(0.025 / comparisons), abs=1e-4)


@pytest.mark.parametrize("points", [2, 3, 20, 200])
def test_shares_differ_where_chi_squared_says_so(points):
    shares = [0.4 + 0.01 * (i % 2) for i in range(points)]
    mean = sum(shares) / points
    statistic_of_one = sum((share - mean) ** 2 for share in shares) / (mean * (1 - mean))
    bound = chi2.isf(0.05, points - 1) / statistic_of_one  # prompts at which they are just different
    assert not differ(shares, [0.98 * bound] * points)
    assert differ(shares, [1.02 * bound] * points)


@pytest.mark.parametrize(
    ("shares", "counts"), [([], []), ([0.5], [9]), ([0, 0], [9, 9]), ([1, 1, 1], [9] * 3)]
)
def test_equal_shares_do_not_differ(shares, counts):
    assert not differ(shares, counts)


def evaluation(before, after, prompts, **more):
    return {"accuracy_sft": before, "accuracy_grpo": after, "prompts": prompts, **more}


@pytest.mark.parametrize(
    ("result", "is_noise"),
    [
        (evaluation(0.119, 0.131, 1000), True), (evaluation(0.119, 0.120, 1000), True),
        (evaluation(0.4, 0.4, 1000), True), (evaluation(0.0, 0.0, 16), True),
        (evaluation(1.0, 1.0, 16), True),
        (evaluation(0.0, 0.125, 16), True), (evaluation(0.131, 0.119, 1000), True),
        (evaluation(0.512, 0.743, 1000), False), (evaluation(0.743, 0.512, 1000), False),
        (evaluation(0.0, 0.5, 16), False), (evaluation(0.5, 0.52, 20_000), False),
        # the same accuracies: 20 prompts fixed and none broken, or 220 and 200
        (evaluation(0.4, 0.42, 1000, outcomes={"fixed": 20, "broken": 0}), False),
        (evaluation(0.4, 0.42, 1000, outcomes={"fixed": 220, "broken": 200}), True),
    ],
)  # fmt: skip
def test_a_gain_that_chance_explains_is_within_noise(result, is_noise):
    (tile,) = (tile for tile in tiles(result, with_sft=False) if tile.label == "Gain")
    assert ("within noise" in tile.detail) is is_noise and tile.strong is not is_noise


@pytest.mark.parametrize("prompts", [None, 0, -5, "x", math.nan])
def test_without_a_number_of_prompts_there_is_no_margin(prompts):
    result = evaluation(0.1, 0.2, prompts)
    assert gain_margin(result) is None
    assert [tile.detail for tile in tiles(result, with_sft=False)][-1] == "percentage points"


def test_points_that_may_be_as_good_as_the_best_are_indistinct():
    accuracies = [0.500, 0.495, 0.46, 0.3, 0.1]
    ranked = [(i, evaluation(0.1, accuracy, 1000)) for i, accuracy in enumerate(accuracies)]
    assert list(indistinct(ranked)) == [1, 2]
    assert list(indistinct(ranked[::4])) == []
    larger = [(i, {**result, "prompts": 100_000}) for i, result in ranked]
    assert list(indistinct(larger)) == [1]
    assert indistinct(
        [(3, {"accuracy_grpo": 0.5}), (4, {"accuracy_grpo": 0.5}), (5, {"accuracy_grpo": 0.4})]
    ) == {4: None}
    assert indistinct([]) == indistinct(ranked[:1]) == {}
