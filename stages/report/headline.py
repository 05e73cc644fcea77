"""The result of a run: accuracy before and after GRPO, the gain, pass@k."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.report.artifacts import mapping
from stages.report.text import figure, number, percent

GREEDY = "Greedy accuracy"
Z_95 = 1.96
"""Half width of a 95 % interval, in standard errors."""


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
        label = "Before GRPO, after sft" if with_sft else "Before GRPO"
        result.append(Tile(label, percent(before), _interval(before, prompts)))
    if after is not None:
        result.append(Tile("After GRPO", percent(after), _interval(after, prompts)))
    for pair in pairs(evaluation):
        if pair.label == GREEDY:
            result.append(Tile("Gain", pair.gain, _gain_interval(pair, prompts), strong=True))
        elif pair.label.startswith("pass@"):
            result.append(Tile(pair.label, percent(pair.after), f"{percent(pair.before)} before"))
    return result


def _gain_interval(pair: Pair, prompts: float | None) -> str:
    """Return the 95 % interval of independent measurements; on the same prompts the true one is narrower."""
    variance = pair.before * (1 - pair.before) + pair.after * (1 - pair.after)
    if not prompts or not 0 <= pair.before <= 1 or not 0 <= pair.after <= 1:
        return "percentage points"
    return f"percentage points, ± {100 * Z_95 * math.sqrt(variance / prompts):.1f}"


def _interval(share: float, prompts: float | None) -> str:
    """Return Wilson's 95 % score interval (Wilson 1927), which stays within 0 to 1 for small samples."""
    if not prompts or not 0 <= share <= 1:
        return "greedy, held out"
    scale = 1 + Z_95**2 / prompts
    centre = (share + Z_95**2 / (2 * prompts)) / scale
    half = Z_95 / scale * math.sqrt(share * (1 - share) / prompts + Z_95**2 / (4 * prompts**2))
    return f"{100 * (centre - half):.1f} to {100 * (centre + half):.1f} % (95 % interval)"
