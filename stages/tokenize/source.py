"""Rows in batches, and the counts and reasons of rows that are left out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Generic, Protocol, TypeVar

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


class Numbered(Protocol):
    """A row with its position."""

    @property
    def line(self) -> int:
        """Line or row of the file, from 1."""


R = TypeVar("R", bound=Numbered)
Read = Callable[[Path], Iterator[R | BadLine]]


@dataclass(frozen=True)
class TooLong:
    """A text with more tokens than a key of section tokenize allows."""

    what: str
    """The text, for messages."""
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
    """File name."""
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

    def check(self, source: Path, max_bad_share: float) -> None:
        """Refuse the file if no row is used or too many are left out.

        Raises:
            InputError: naming the first row left out, the reasons with their counts, and the keys to change.
        """
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


@dataclass(frozen=True)
class Source(Generic[R]):
    """The rows of one or several files, in order."""

    files: Sequence[Path]
    read: Read[R]
    text: Callable[[R], str]
    """Return the text by which two rows are duplicates."""
    limit: int | None = None
    """Good rows to use (the first ones); None: all."""

    def batches(self, tally: Tally) -> Iterator[tuple[Path, list[R]]]:
        """Yield batches of readable rows with their file; drop the others.

        Raises:
            InputError: a file can't be read.
        """
        left = self.limit
        seen: set[int] = set()
        for file in self.files:
            rows = islice(self._readable(file, tally, seen), left)
            while batch := self._batch(rows):
                left = None if left is None else left - len(batch)
                yield file, batch

    def _readable(self, file: Path, tally: Tally, seen: set[int]) -> Iterator[R]:
        for entry in self.read(file):
            tally.card.rows_in += 1
            if isinstance(entry, BadLine):
                tally.drop(file, entry.line, entry.reason)
                continue
            key = hash(self.text(entry))
            tally.card.duplicates += key in seen
            seen.add(key)
            yield entry

    def _batch(self, rows: Iterator[R]) -> list[R]:
        """Return the next rows, fewer if they are long; [] at the end."""
        batch, size = list[R](), 0
        while len(batch) < ROWS_PER_BATCH and size < CHARACTERS_PER_BATCH:
            row = next(rows, None)
            if row is None:
                break
            batch.append(row)
            size += len(self.text(row))
        return batch
