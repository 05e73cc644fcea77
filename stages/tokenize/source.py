"""Reading of rows in batches, and a record of each row that is left out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Generic, Protocol, TextIO, TypeVar

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.fetch.records import BadLine, place
from stages.tokenize.card import SAMPLES, FileCard
from stages.tokenize.records import RecordWriter
from stages.weights.dtypes import Array

ROWS_PER_BATCH = 1024  # enough for the Rust threads, little enough for memory
CHARACTERS_PER_BATCH = 1 << 24  # a tokenizer takes 150 times as much memory as the text that it is given
DROPPED = ".dropped.jsonl"
SMALLEST_ROW = 16  # bytes that a JSON object with some text takes at least

Progress = Callable[[int, int], None]


class Numbered(Protocol):
    """A row that knows its place."""

    @property
    def line(self) -> int:
        """Line or row of the file, from 1."""


R = TypeVar("R", bound=Numbered)
Read = Callable[[Path], Iterator[R | BadLine]]


class Ledger:
    """NAME.dropped.jsonl: one line per row left out; not there when there are none."""

    def __init__(self, file: Path) -> None:
        """Open the file; nothing is written before the first row."""
        self._file = file
        self._stream: TextIO | None = None

    def add(self, target: str, source: Path, line: int, reason: str) -> None:
        """Record a row that is left out of the file `target`."""
        if self._stream is None:
            self._stream = self._file.open("w", encoding="utf-8")
        entry = {"file": target, "source": source.name, "line": line, "reason": reason}
        self._stream.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()


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
    """Counts of the rows of one file in the making, and the first row that is left out."""

    name: str
    """File name."""
    ledger: Ledger | None = None
    """Takes the rows left out; None: they are only counted."""
    card: FileCard = field(default_factory=FileCard)
    first: tuple[str, str] | None = None
    """Position and reason of the first row left out."""
    needed: dict[str, int] = field(default_factory=dict)
    """Key of a limit -> value that would hold every row."""

    def drop(self, source: Path, line: int, fault: str | TooLong, *more: TooLong) -> None:
        """Leave a row out and record it, counted under its first fault."""
        reason = fault if isinstance(fault, str) else fault.reason
        self.card.dropped[reason] += 1
        if self.ledger is not None:
            self.ledger.add(self.name, source, line, reason)
        for long in (fault, *more):
            if isinstance(long, TooLong):
                self.needed[long.key] = max(long.tokens, self.needed.get(long.key, 0))
        self.first = self.first or (place(source, line), str(fault))

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
        left = "no row is left" if not self.card.rows_out else f"{dropped} of {rows} rows are unusable"
        raise InputError(position, None, f"{fault}; {left}: {counts}", self._remedy(dropped / rows))

    def _remedy(self, share: float) -> str:
        remedies = [f"set {key}={tokens}" for key, tokens in self.needed.items()]
        if any(not reason.endswith(tuple(self.needed)) for reason in self.card.dropped):
            remedies.append("correct the rows, dataset.columns or dataset.solution")
        text = " and ".join(remedies)
        if not self.card.rows_out:
            return text
        return f"{text}, or set dataset.max_bad_share={math.ceil(share * 1000) / 1000} to leave them out"


@dataclass(kw_only=True)
class Target(Tally):
    """One MindRecord file in the making."""

    writer: RecordWriter

    def write(self, columns: dict[str, Array], rows: int) -> None:
        """Write records made of `rows` rows."""
        self.writer.write(columns)
        self.card.rows_out += rows
        self.card.records = self.writer.rows

    @property
    def samples_wanted(self) -> int:
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

    def batches(self, target: Tally) -> Iterator[tuple[Path, list[R]]]:
        """Yield readable rows with the file that they are from; drop the others from `target`.

        Raises:
            InputError: a file can't be read.
        """
        left = self.limit
        seen: set[int] = set()
        for file in self.files:

            def good(file: Path = file) -> Iterator[R]:
                for entry in self.read(file):
                    target.card.rows_in += 1
                    if isinstance(entry, BadLine):
                        target.drop(file, entry.line, entry.reason)
                        continue
                    key = hash(self.text(entry))
                    target.card.duplicates += key in seen
                    seen.add(key)
                    yield entry

            rows = islice(good(), left)
            while batch := self._batch(rows):
                left = None if left is None else left - len(batch)
                yield file, batch


def count_rows(files: Sequence[Path]) -> int:
    """At least as many rows as the files hold usable ones, at the speed of memory.

    Lines of JSON lines, rows of Parquet; of a JSON array the opening braces, each an object at most.
    """
    return sum(_count(file) for file in files)


def _count(file: Path) -> int:
    if file.suffix == ".parquet":
        from stages.fetch.parquet import count_rows

        return count_rows(file)
    sign = b"{" if file.suffix == ".json" else b"\n"
    try:
        with open_regular(file) as stream:
            lines = sum(block.count(sign) for block in iter(lambda: stream.read(1 << 20), b"")) + 1
        return min(lines, file.stat().st_size // SMALLEST_ROW + 1) if sign == b"{" else lines
    except OSError as error:
        raise InputError(file, None, f"can't be read: {error.strerror}", "check the path") from error
