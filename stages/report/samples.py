"""Completions shown on the page: held-out ones before and after training, and some of the last step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stages.report.artifacts import mapping
from stages.report.text import figure, number

VERDICTS = {
    (False, True): "fixed",
    (True, False): "broken",
    (True, True): "both right",
    (False, False): "both wrong",
}
"""(right before, right after) -> verdict."""
JUDGE = "accuracy"
"""Reward function that tells right from wrong where a row does not say it."""


def verdict(row: Mapping[str, Any]) -> str:
    """Return whether GRPO fixed or broke the answer of a row of samples.jsonl; empty if that is not known."""
    before, after = (_is_right(row, side) for side in ("before", "after"))
    return "" if before is None or after is None else VERDICTS[before, after]


def _is_right(row: Mapping[str, Any], side: str) -> bool | None:
    recorded = row.get(f"{side}_right")
    if isinstance(recorded, bool):
        return recorded
    part = number(mapping(row.get(f"{side}_parts")).get(JUDGE))
    return None if part is None else part > 0


def verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of rows with each verdict as a phrase; empty if no row has one."""
    counts = Counter(map(verdict, rows))
    return _phrase(counts) if any(counts[name] for name in VERDICTS.values()) else ""


def outcomes(evaluation: Mapping[str, Any]) -> str:
    """Return the number of all held-out prompts with each verdict as a phrase; empty if it is not known."""
    recorded = mapping(evaluation.get("outcomes"))
    counts = {name: number(recorded.get(name.replace(" ", "_"))) for name in VERDICTS.values()}
    return "" if None in counts.values() else _phrase(counts)


def _phrase(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{figure(counts[name])} {name}" for name in VERDICTS.values())


def last_step(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the last training step in completions.jsonl."""
    last = max((step for row in rows if (step := number(row.get("step"))) is not None), default=None)
    return [row for row in rows if last is not None and number(row.get("step")) == last]
