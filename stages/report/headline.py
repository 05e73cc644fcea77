"""The result of a run: accuracy before and after GRPO, the gain, pass@k, with margins at a level of 95 %.

The margins say what measuring on a limited number of prompts leaves open. They are adjusted so that they hold
for few prompts and for shares of 0 and 1, where the usual standard error is 0.

Source: Wilson 1927; Agresti and Caffo 2000 (independent shares); Bonett and Price 2012 (paired shares).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.artifacts import mapping
from stages.report.language import translate
from stages.report.text import figure, number, percent

Z_95 = 1.96
"""Half width of a 95 % interval, in standard errors."""
GREEDY = "Greedy accuracy"
NOISE = "within noise"
"""Words for a difference that may be chance."""


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


@dataclass(frozen=True)
class Tile:
    """One headline figure."""

    label: str
    value: str
    detail: str
    strong: bool = False


@dataclass(frozen=True)
class Pair:
    """One measure before and after GRPO, as shares of 1."""

    label: str
    before: float
    after: float

    @property
    def gain(self) -> str:
        """The difference in signed percentage points."""
        return f"{100 * (self.after - self.before):+.1f}".replace("-", "−")


def pairs(evaluation: Mapping[str, Any]) -> list[Pair]:
    """Return the measures of evaluate's result.json that have a value before and after GRPO."""
    rows = [(GREEDY, evaluation.get("accuracy_sft"), evaluation.get("accuracy_grpo"))]
    for key, label in (("mean_at_k", "mean@"), ("pass_at_k", "pass@"), ("worked_share", "Worked answers")):
        values = mapping(evaluation.get(key))
        if label.endswith("@"):
            k = number(values.get("k"))
            label += "k" if k is None else figure(k)
        rows.append((label, values.get("sft"), values.get("grpo")))
    return [
        Pair(label, low, high)
        for label, before, after in rows
        if (low := number(before)) is not None and (high := number(after)) is not None
    ]


def tiles(evaluation: Mapping[str, Any], with_sft: bool) -> list[Tile]:
    """Return the tiles at the top of the page; those without a number are left out."""
    before, after = number(evaluation.get("accuracy_sft")), number(evaluation.get("accuracy_grpo"))
    prompts = number(evaluation.get("prompts"))
    result = []
    if before is not None:
        label = translate("Before GRPO, after sft" if with_sft else "Before GRPO")
        result.append(Tile(label, percent(before), _interval(before, prompts)))
    if after is not None:
        result.append(Tile(translate("After GRPO"), percent(after), _interval(after, prompts)))
    for pair in pairs(evaluation):
        if pair.label == GREEDY:
            half = gain_margin(evaluation)
            detail = translate("percentage points") + ("" if half is None else f", ± {100 * half:.1f} (95 %)")
            is_noise = half is not None and abs(pair.after - pair.before) <= half
            detail += f": {translate(NOISE)}" if is_noise else ""
            result.append(Tile(translate("Gain"), pair.gain, detail, strong=not is_noise))
        elif pair.label.startswith("pass@"):
            earlier = translate("{share} before", share=percent(pair.before))
            result.append(Tile(pair.label, percent(pair.after), earlier))
    return result


def gain_margin(evaluation: Mapping[str, Any]) -> float | None:
    """Return the half width of the gain's 95 % interval as a share; None if it is not known.

    Without the number of prompts that were fixed and broken, it is that of independent measurements; on the
    same prompts the true one is narrower.
    """
    before, after = number(evaluation.get("accuracy_sft")), number(evaluation.get("accuracy_grpo"))
    prompts, outcomes = number(evaluation.get("prompts")), mapping(evaluation.get("outcomes"))
    fixed, broken = number(outcomes.get("fixed")), number(outcomes.get("broken"))
    if before is None or after is None or not 0 <= before <= 1 or not 0 <= after <= 1:
        return None
    if prompts is None or prompts <= 0:
        return None
    if fixed is not None and broken is not None and fixed >= 0 <= broken and fixed + broken <= prompts:
        return paired_margin(fixed, broken, prompts)
    return margin(before, after, (prompts, prompts))


def gain_text(pair: Pair, evaluation: Mapping[str, Any]) -> str:
    """Return the gain with the half width of its interval, in percentage points."""
    half = gain_margin(evaluation)
    return pair.gain if half is None else f"{pair.gain} ± {100 * half:.1f}"


@dataclass(frozen=True)
class Lag:
    """Difference of an accuracy after GRPO from the highest one, as a share."""

    difference: float
    """At least 0."""
    half: float | None
    """Half width of its interval; None if it is not known, because the number of prompts is not."""

    @property
    def is_noise(self) -> bool:
        """True if the interval contains 0, so that chance may explain the difference."""
        return self.difference <= (self.half or 0.0)

    @property
    def text(self) -> str:
        """The difference in percentage points with the half width, and what follows from it."""
        points = f"{-100 * self.difference:.1f}".replace("-0.0", "0.0").replace("-", "−")
        if self.half is None:
            return points
        verdict = translate(NOISE if self.is_noise else "lower")
        return f"{points} ± {100 * self.half:.1f}: {verdict}"


def lags(ranked: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, Lag]:
    """Return the difference from the best of each other result that has an accuracy.

    Args:
        ranked: number and result of each point or run that has a result, the best first.

    Returns:
        Number -> its difference. All intervals hold at once at 95 %. They are those of shares that were
        measured on prompts of their own; on the same prompts the true ones are narrower.
    """
    shares = [(point, share_of(result), number(result.get("prompts"))) for point, result in ranked]
    behind: dict[int, Lag] = {}
    for point, share, prompts in shares[1:]:
        _, best, best_prompts = shares[0]
        if share is None or best is None:
            continue
        half = None
        if prompts and best_prompts and prompts > 0 < best_prompts:
            half = margin(best, share, (best_prompts, prompts), comparisons=len(shares) - 1)
        behind[point] = Lag(best - share, half)
    return behind


def indistinct(ranked: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, float | None]:
    """Return the points whose accuracy after GRPO may be as high as the best one's.

    Args:
        ranked: number and result of each point that has a result, the best first.

    Returns:
        Number of the point -> half width of the interval of its difference from the best, as in `lags`.
    """
    return {point: lag.half for point, lag in lags(ranked).items() if lag.is_noise}


def share_of(result: Mapping[str, Any]) -> float | None:
    """Return the accuracy after GRPO; None if it is missing or no share."""
    accuracy = number(result.get("accuracy_grpo"))
    return accuracy if accuracy is not None and 0 <= accuracy <= 1 else None


def _interval(share: float, prompts: float | None) -> str:
    """Return Wilson's 95 % interval."""
    if prompts is None or prompts <= 0 or not 0 <= share <= 1:
        return translate("greedy, held out")
    low, high = (f"{100 * edge:.1f}" for edge in wilson(share, prompts))
    return translate("{low} to {high} % (95 % interval)", low=low, high=high)
