"""The figures that a reader wants first: accuracy before and after, the gain, pass@k."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.report.artifacts import mapping
from stages.report.text import figure, number, percent

GREEDY = "Greedy accuracy"


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
        """The difference in percentage points, signed."""
        return points_of(self.after - self.before)


def points_of(share: float) -> str:
    """Format a difference of shares as signed percentage points."""
    return f"{100 * share:+.1f}".replace("-", "−")


def pairs(evaluation: Mapping[str, Any]) -> list[Pair]:
    """Every measure of evaluate's result.json that has both a value before and one after."""
    greedy = (GREEDY, evaluation.get("accuracy_sft"), evaluation.get("accuracy_grpo"))
    rows: list[tuple[str, object, object]] = [greedy]
    k = number(mapping(evaluation.get("pass_at_k")).get("k"))
    name = "k" if k is None else figure(k)
    for key, label in (
        ("mean_at_k", f"mean@{name}"),
        ("pass_at_k", f"pass@{name}"),
        ("worked_share", "Worked answers"),
    ):
        values = mapping(evaluation.get(key))
        rows.append((label, values.get("sft"), values.get("grpo")))
    measures = []
    for label, before, after in rows:
        low, high = number(before), number(after)
        if low is not None and high is not None:
            measures.append(Pair(label, low, high))
    return measures


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
    if before is not None and after is not None:
        detail = "percentage points"
        if prompts and 0 <= before <= 1 and 0 <= after <= 1:
            # As if the two measurements were independent; on the same prompts the true interval is narrower.
            spread = 1.96 * math.sqrt((before * (1 - before) + after * (1 - after)) / prompts)
            detail += f", ± {100 * spread:.1f}"
        result.append(Tile("Gain", points_of(after - before), detail, strong=True))
    for pair in pairs(evaluation):
        if pair.label.startswith("pass@"):
            result.append(Tile(pair.label, percent(pair.after), f"{percent(pair.before)} before"))
    return result


def _interval(share: float, prompts: float | None) -> str:
    """Wilson's 95 % score interval (Wilson 1927), which stays inside 0 to 1 for small samples too."""
    if not prompts or not 0 <= share <= 1:
        return "greedy, held out"
    z = 1.96
    centre = (share + z * z / (2 * prompts)) / (1 + z * z / prompts)
    half = z / (1 + z * z / prompts) * math.sqrt(share * (1 - share) / prompts + z * z / (4 * prompts**2))
    return f"{100 * (centre - half):.1f} to {100 * (centre + half):.1f} % (95 % interval)"
