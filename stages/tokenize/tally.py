"""The data card of one file: row counts, reasons of rows left out, token lengths and sample rows."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.fetch.records import BadLine, row_position
from stages.tokenize.mindrecord import MindRecordFile
from stages.weights.dtypes import Array

PERCENTILES = (0, 10, 25, 50, 75, 90, 95, 99, 100)
SAMPLES = 3
DROPPED = ".dropped.jsonl"
"""Suffix of the file that lists the rows left out."""


@dataclass(frozen=True)
class TooLong:
    """A text with more tokens than a key of section tokenize allows."""

    what: str
    column: str
    tokens: int
    key: str
    limit: int

    @property
    def reason(self) -> str:
        """Description without the row's numbers."""
        return f"{self.column} is longer than {self.key}"

    def __str__(self) -> str:
        return f"{self.what} has {self.tokens} tokens, more than {self.key}={self.limit}"


@dataclass
class Tally:
    """Counts and samples of the rows of one file."""

    name: str
    dropped_file: Path | None = None
    """File that gets a JSON line for each row left out."""
    rows_in: int = 0
    """Rows read, bad ones included."""
    rows_out: int = 0
    """Rows used."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows left out."""
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
    first: tuple[str, str] | None = None
    """Position and reason of the first row left out."""
    needed: dict[str, int] = field(default_factory=dict)
    """Key of a limit -> value with which no row is too long."""

    def add_length(self, column: str, tokens: int) -> None:
        """Record the length of one row."""
        self.lengths.setdefault(column, array("I")).append(tokens)

    def drop(self, source: Path, line: int, fault: str | TooLong, *more: str | TooLong) -> None:
        """Leave a row out; it is counted under its first fault."""
        reason = fault if isinstance(fault, str) else fault.reason
        self.dropped[reason] += 1
        if self.dropped_file is not None:
            entry = {"file": self.name, "source": source.name, "line": line, "reason": reason}
            with self.dropped_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        for long in (fault, *more):
            if isinstance(long, TooLong):
                self.needed[long.key] = max(long.tokens, self.needed.get(long.key, 0))
        self.first = self.first or (row_position(source, line), str(fault))

    def drop_all(self, source: Path, rows: Iterable[BadLine]) -> None:
        """Leave several rows out."""
        for row in rows:
            self.drop(source, row.line, row.reason)

    def check(self, source: Path, max_bad_share: float) -> None:
        """Refuse the file if no row is used or too many are left out."""
        dropped = self.dropped.total()
        if self.rows_out and dropped / self.rows_in <= max_bad_share:
            return
        if self.first is None:
            raise InputError(source, None, "no row is left: it is empty", "check the path")
        position, fault = self.first
        counts = "; ".join(f"{reason} ({count} rows)" for reason, count in self.dropped.most_common())
        left = f"{dropped} of {self.rows_in} rows are unusable" if self.rows_out else "no row is left"
        raise InputError(position, None, f"{fault}; {left}: {counts}", self._remedy(dropped / self.rows_in))

    def _remedy(self, share: float) -> str:
        remedies = [f"set {key}={tokens}" for key, tokens in self.needed.items()]
        if any(not reason.endswith(tuple(self.needed)) for reason in self.dropped):
            remedies.append("correct the rows, dataset.columns or dataset.solution")
        text = " and ".join(remedies)
        if self.rows_out:
            share = math.ceil(share * 1000) / 1000
            text += f", or set dataset.max_bad_share={share} to leave them out"
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the data card as plain data."""
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


@dataclass(kw_only=True)
class RecordFile(Tally):
    """One MindRecord file that is being written."""

    writer: MindRecordFile

    def write(self, columns: dict[str, Array]) -> None:
        """Write rows."""
        self.writer.write(columns)
        self.rows_out = self.writer.rows


def summary(values: array[int]) -> dict[str, Any]:
    """Return mean, percentiles and a histogram of token counts."""
    counts = np.frombuffer(values, dtype=np.dtype(values.typecode))
    heights, edges = np.histogram(counts, bins=min(20, int(np.ptp(counts)) + 1))
    return {
        "mean": round(float(counts.mean()), 2),
        "percentiles": {str(p): int(np.percentile(counts, p, method="nearest")) for p in PERCENTILES},
        "histogram": {"edges": [round(float(edge), 2) for edge in edges], "rows": heights.tolist()},
    }
