"""Rows of files, read in batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from stages.fetch.records import BadLine
from stages.tokenize.tally import Tally

ROWS_PER_BATCH = 1024  # enough for the Rust threads, little enough for memory
CHARACTERS_PER_BATCH = 1 << 24  # a tokenizer takes 150 times as much memory as its text

R = TypeVar("R")
Read = Callable[[Path], Iterator[R | BadLine]]


@dataclass(frozen=True)
class Rows(Generic[R]):
    """Rows of some files, one after the other."""

    files: Sequence[Path]
    read: Read[R]
    limit: int | None = None
    """Only the first readable rows up to this number; None: all."""


def read_batches(rows: Rows[R], text: Callable[[R], str], tally: Tally) -> Iterator[tuple[Path, list[R]]]:
    """Yield batches of readable rows with their file; drop the others.

    Rows with equal `text` are counted as duplicates. A batch has fewer rows if they are long.
    """
    seen: set[int] = set()

    def readable(file: Path) -> Iterator[R]:
        for entry in rows.read(file):
            tally.rows_in += 1
            if isinstance(entry, BadLine):
                tally.drop(file, entry.line, entry.reason)
                continue
            key = hash(text(entry))
            tally.duplicates += key in seen
            seen.add(key)
            yield entry

    used = 0
    for file in rows.files:
        batch, size = list[R](), 0
        for row in islice(readable(file), None if rows.limit is None else rows.limit - used):
            used += 1
            batch.append(row)
            size += len(text(row))
            if len(batch) == ROWS_PER_BATCH or size >= CHARACTERS_PER_BATCH:
                yield file, batch
                batch, size = [], 0
        if batch:
            yield file, batch
