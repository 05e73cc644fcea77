"""Margins of shares: what measuring on a limited number of prompts leaves open, at a level of 95 %.

All are adjusted so that they hold for few prompts and for shares of 0 and 1, where the usual standard error
is 0.

Source: Wilson 1927; Agresti and Caffo 2000 (independent shares); Bonett and Price 2012 (paired shares).
"""

import math
from collections.abc import Sequence

Z_95 = 1.96
"""Half width of a 95 % interval, in standard errors."""


def wilson(share: float, count: float, z: float = Z_95) -> tuple[float, float]:
    """Return the score interval of a share of `count` independent trials; it stays within 0 to 1."""
    scale = 1 + z**2 / count
    centre = (share + z**2 / (2 * count)) / scale
    half = z / scale * math.sqrt(max(0.0, share * (1 - share)) / count + z**2 / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def margin(first: float, second: float, counts: tuple[float, float], comparisons: int = 1) -> float:
    """Return the half width of the interval of a difference of two shares, measured independently.

    With several `comparisons`, all of their intervals hold at once (Bonferroni).
    """
    variance = 0.0
    for share, count in zip((first, second), counts, strict=True):
        adjusted = (share * count + 1) / (count + 2)
        variance += adjusted * (1 - adjusted) / (count + 2)
    return quantile(comparisons) * math.sqrt(variance)


def paired_margin(fixed: float, broken: float, count: float) -> float:
    """Return the half width of the interval of (fixed - broken) / count, measured on the same prompts."""
    up, down = (fixed + 1) / (count + 2), (broken + 1) / (count + 2)
    return Z_95 * math.sqrt((up + down - (up - down) ** 2) / (count + 2))


def quantile(comparisons: int) -> float:
    """Return the half width in standard errors at which `comparisons` intervals hold at once at 95 %."""
    return Z_95 if comparisons <= 1 else _normal_quantile(1 - 0.05 / (2 * comparisons))


def differ(shares: Sequence[float], counts: Sequence[float]) -> bool:
    """Return True if shares differ by more than chance: a chi-squared test of equal shares at 5 %.

    From two degrees of freedom on, the quantile of chi-squared is Wilson and Hilferty's (1931).
    """
    freedom, trials = len(shares) - 1, sum(counts)
    mean = sum(share * count for share, count in zip(shares, counts, strict=True)) / max(1.0, trials)
    if freedom < 1 or not 0 < mean < 1:
        return False
    statistic = sum(
        count * (share - mean) ** 2 / (mean * (1 - mean)) for share, count in zip(shares, counts, strict=True)
    )
    part = 2 / (9 * freedom)
    bound = freedom * (1 - part + _normal_quantile(0.95) * math.sqrt(part)) ** 3
    return statistic > (Z_95**2 if freedom == 1 else bound)


def _normal_quantile(probability: float) -> float:
    from statistics import NormalDist  # imported late: only sweeps need it

    return NormalDist().inv_cdf(probability)
