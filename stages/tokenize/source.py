"""What all kinds of rows share: reading in batches, and a record of each row that is left out."""

from __future__ import annotations

import json
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
        """Nothing is written before the first row."""
        self._file = file
        self._stream: TextIO | None = None

    def add(self, target: Path, source: Path, line: int, reason: str) -> None:
        """Name a row that `target` lacks."""
        if self._stream is None:
            self._stream = self._file.open("w", encoding="utf-8")
        entry = {"file": target.name, "source": source.name, "line": line, "reason": reason}
        self._stream.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()


@dataclass
class Target:
    """One MindRecord file in the making."""

    writer: RecordWriter
    ledger: Ledger
    card: FileCard = field(default_factory=FileCard)

    def drop(self, source: Path, line: int, reason: str) -> None:
        """Leave a row out, by name."""
        self.card.dropped[reason] += 1
        self.ledger.add(self.writer.file, source, line, reason)

    def write(self, columns: dict[str, Array], rows: int) -> None:
        """Write records made of `rows` rows."""
        self.writer.write(columns)
        self.card.rows_out += rows
        self.card.records = self.writer.rows

    @property
    def samples_wanted(self) -> int:
        """How many more rows the data card shows."""
        return SAMPLES - len(self.card.samples)

    def require_rows(self, source: Path) -> None:
        """Raise InputError if no row came through."""
        if self.card.rows_out:
            return
        reasons = "; ".join(f"{reason} ({count} rows)" for reason, count in self.card.dropped.most_common(3))
        remedy = "check dataset.columns and the lengths in tokenize"
        raise InputError(source, None, f"no row is left: {reasons or 'it is empty'}", remedy)


@dataclass(frozen=True)
class Source(Generic[R]):
    """The rows of one or several files, in order."""

    files: Sequence[Path]
    read: Read[R]
    text: Callable[[R], str]
    """What makes two rows duplicates."""
    max_bad_share: float
    """Share of bad rows above which reading ends with an error."""
    limit: int | None = None
    """Good rows to use (the first ones); None: all."""

    def _batch(self, rows: Iterator[R]) -> list[R]:
        """The next rows, fewer where they are long; [] at the end."""
        batch, size = list[R](), 0
        while len(batch) < ROWS_PER_BATCH and size < CHARACTERS_PER_BATCH:
            row = next(rows, None)
            if row is None:
                break
            batch.append(row)
            size += len(self.text(row))
        return batch

    def batches(self, target: Target) -> Iterator[tuple[Path, list[R]]]:
        """Good rows with the file that they are from; bad ones are dropped from `target`.

        Raises:
            InputError: too many rows are bad (the first is named), or a file can't be read.
        """
        left, bad = self.limit, 0
        first: tuple[Path, BadLine] | None = None
        seen: set[int] = set()
        for file in self.files:

            def good(file: Path = file) -> Iterator[R]:
                nonlocal bad, first
                for entry in self.read(file):
                    target.card.rows_in += 1
                    if isinstance(entry, BadLine):
                        bad, first = bad + 1, first or (file, entry)
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
        if first and bad / target.card.rows_in > self.max_bad_share:
            rule = f"{first[1].reason} ({bad} bad lines of {target.card.rows_in})"
            remedy = "mend the lines, set dataset.columns, or raise dataset.max_bad_share"
            raise InputError(place(first[0], first[1].line), None, rule, remedy)


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
            found = sum(block.count(sign) for block in iter(lambda: stream.read(1 << 20), b"")) + 1
        return min(found, file.stat().st_size // SMALLEST_ROW + 1) if sign == b"{" else found
    except OSError as error:
        raise InputError(file, None, f"can't be read: {error.strerror}", "check the path") from error
