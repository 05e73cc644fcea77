"""The data card of a MindRecord file: row counts, token lengths and sample rows."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PERCENTILES = (0, 10, 25, 50, 75, 90, 95, 99, 100)
BINS = 20
SAMPLES = 3


@dataclass
class FileCard:
    """Counts and samples of one MindRecord file."""

    rows_in: int = 0
    """Rows read, bad ones included."""
    rows_out: int = 0
    """Rows used: rows_in minus the dropped ones."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows; NAME.dropped.jsonl lists them."""
    truncated: Counter[str] = field(default_factory=Counter)
    """Column -> rows truncated to its length."""
    duplicates: int = 0
    """Rows whose prompt occurred earlier in the same file; they are used."""
    repeated: int = 0
    """Test rows whose question occurs in training; they are used."""
    repeated_examples: list[dict[str, Any]] = field(default_factory=list)
    """Line and question of the first ones."""
    lengths: dict[str, array[int]] = field(default_factory=dict)
    """Column -> tokens of each row before truncation and padding."""
    samples: list[dict[str, str]] = field(default_factory=list)
    """The first rows, decoded."""

    def add_length(self, column: str, tokens: int) -> None:
        """Record the length of one row."""
        self.lengths.setdefault(column, array("I")).append(tokens)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for result.json."""
        repeated = {"repeated": {"rows": self.repeated, "examples": self.repeated_examples}}
        return {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "records": self.rows_out,
            "padding": 0,
            "dropped": dict(self.dropped),
            "truncated": dict(self.truncated),
            "duplicates": self.duplicates,
            **(repeated if self.repeated else {}),
            "lengths": {column: summary(values) for column, values in self.lengths.items()},
            "samples": self.samples,
        }


def summary(values: array[int]) -> dict[str, Any]:
    """Return mean, percentiles and a histogram of token counts."""
    counts = np.frombuffer(values, dtype=np.dtype(values.typecode))
    heights, edges = np.histogram(counts, bins=min(BINS, int(np.ptp(counts)) + 1))
    return {
        "mean": round(float(counts.mean()), 2),
        "percentiles": {str(p): int(np.percentile(counts, p, method="nearest")) for p in PERCENTILES},
        "histogram": {"edges": [round(float(edge), 2) for edge in edges], "rows": heights.tolist()},
    }
