"""Rows in batches, and the counts and reasons of rows that are left out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from stages.base.errors import InputError
from stages.fetch.records import BadLine, row_position
from stages.tokenize.card import SAMPLES, FileCard
from stages.tokenize.records import RecordWriter
from stages.weights.dtypes import Array

ROWS_PER_BATCH = 1024  # enough for the Rust threads, little enough for memory
CHARACTERS_PER_BATCH = 1 << 24  # a tokenizer takes 150 times as much memory as its text
DROPPED = ".dropped.jsonl"
"""Suffix of the file that lists the rows left out."""

Progress = Callable[[int, int], None]
R = TypeVar("R")
Read = Callable[[Path], Iterator[R | BadLine]]


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
    """Counts of the rows of one file, and the first row that is left out."""

    name: str
    dropped: Path | None = None
    """File that gets a JSON line for each row left out."""
    card: FileCard = field(default_factory=FileCard)
    first: tuple[str, str] | None = None
    """Position and reason of the first row left out."""
    needed: dict[str, int] = field(default_factory=dict)
    """Key of a limit -> value with which no row is too long."""

    def drop(self, source: Path, line: int, fault: str | TooLong, *more: str | TooLong) -> None:
        """Leave a row out; it is counted under its first fault."""
        reason = fault if isinstance(fault, str) else fault.reason
        self.card.dropped[reason] += 1
        if self.dropped is not None:
            entry = {"file": self.name, "source": source.name, "line": line, "reason": reason}
            with self.dropped.open("a", encoding="utf-8") as file:
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
        dropped, rows = self.card.dropped.total(), self.card.rows_in
        if self.card.rows_out and dropped / rows <= max_bad_share:
            return
        if self.first is None:
            raise InputError(source, None, "no row is left: it is empty", "check the path")
        position, fault = self.first
        counts = "; ".join(f"{reason} ({count} rows)" for reason, count in self.card.dropped.most_common())
        left = f"{dropped} of {rows} rows are unusable" if self.card.rows_out else "no row is left"
        raise InputError(position, None, f"{fault}; {left}: {counts}", self._remedy(dropped / rows))

    def _remedy(self, share: float) -> str:
        remedies = [f"set {key}={tokens}" for key, tokens in self.needed.items()]
        if any(not reason.endswith(tuple(self.needed)) for reason in self.card.dropped):
            remedies.append("correct the rows, dataset.columns or dataset.solution")
        text = " and ".join(remedies)
        if self.card.rows_out:
            share = math.ceil(share * 1000) / 1000
            text += f", or set dataset.max_bad_share={share} to leave them out"
        return text


@dataclass(kw_only=True)
class Target(Tally):
    """One MindRecord file that is being written."""

    writer: RecordWriter

    def write(self, columns: dict[str, Array]) -> None:
        """Write rows."""
        self.writer.write(columns)
        self.card.rows_out = self.writer.rows

    @property
    def missing_samples(self) -> int:
        """Number of rows that the data card still needs as samples."""
        return SAMPLES - len(self.card.samples)


def read_batches(
    files: Sequence[Path], read: Read[R], text: Callable[[R], str], tally: Tally, limit: int | None = None
) -> Iterator[tuple[Path, list[R]]]:
    """Yield batches of the first `limit` readable rows (None: all) with their file; drop the others.

    Rows with equal `text` are counted as duplicates. A batch has fewer rows if they are long.
    """
    seen: set[int] = set()

    def readable(file: Path) -> Iterator[R]:
        for entry in read(file):
            tally.card.rows_in += 1
            if isinstance(entry, BadLine):
                tally.drop(file, entry.line, entry.reason)
                continue
            key = hash(text(entry))
            tally.card.duplicates += key in seen
            seen.add(key)
            yield entry

    used = 0
    for file in files:
        batch, size = list[R](), 0
        for row in islice(readable(file), None if limit is None else limit - used):
            used += 1
            batch.append(row)
            size += len(text(row))
            if len(batch) == ROWS_PER_BATCH or size >= CHARACTERS_PER_BATCH:
                yield file, batch
                batch, size = [], 0
        if batch:
            yield file, batch
