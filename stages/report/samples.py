"""Completions shown on the page: held-out ones before and after training, and some of the last step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stages.report.text import number

VERDICTS = {"better": "got better", "same": "stayed the same", "worse": "got worse"}


def verdict(row: Mapping[str, Any]) -> str:
    """Compare the rewards of a row of samples.jsonl: better, worse or same; empty if one is missing."""
    before, after = number(row.get("before_reward")), number(row.get("after_reward"))
    if before is None or after is None:
        return ""
    return "same" if abs(after - before) < 1e-9 else "better" if after > before else "worse"


def verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of rows with each verdict as a phrase; empty without any."""
    counts = Counter(map(verdict, rows))
    return ", ".join(f"{counts[name]} {words}" for name, words in VERDICTS.items() if counts[name])


def last_step(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the last training step in completions.jsonl."""
    last = max((step for row in rows if (step := number(row.get("step"))) is not None), default=None)
    return [row for row in rows if last is not None and number(row.get("step")) == last]
