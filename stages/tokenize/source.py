"""Rows of the training and the test split, read in batches."""

import json
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from stages.base.errors import InputError
from stages.fetch.config import ColumnsConfig, DatasetConfig
from stages.fetch.records import BadLine, Row, read_lines, split_sources
from stages.tokenize.tally import DROPPED, Tally

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


def splits(
    fetched: Path, dataset: DatasetConfig, columns: ColumnsConfig, with_all: bool = False
) -> tuple[Rows[Row], Rows[Row]]:
    """Return the training and the test rows of an artifact of fetch_dataset; `with_all`: see read_lines."""
    train, test = (split_sources(fetched, split) for split in ("train", "test"))
    read_train: Read[Row]
    read_test: Read[Row]
    if test:
        read_train = read_test = partial(read_lines, columns=columns, with_all=with_all)
    else:
        assert dataset.test_rows is not None  # fetch_dataset requires it without a test file
        read_train, read_test = hold_out(train, columns, dataset.test_rows, with_all)
    return Rows(train, read_train, dataset.train_rows), Rows(test or train, read_test, dataset.test_rows)


def hold_out(
    files: Sequence[Path], columns: ColumnsConfig, rows: int, with_all: bool = False
) -> tuple[Read[Row], Read[Row]]:
    """Divide training files by the digest of their question; return readers of training and test rows.

    The test gets the `rows` smallest digests, a few more if questions repeat. This does not depend on the
    order of the rows, spreads the test over files that are sorted by difficulty, and keeps equal questions on
    one side. Bad lines belong to training. Raise InputError if nothing would be left to train on.
    """
    hashes = array("I")
    for file in files:
        hashes.extend(digest(row.prompt) for row in read_lines(file, columns) if isinstance(row, Row))
    if rows >= len(hashes):
        rule = f"must be below the {len(hashes)} usable rows of {files[0]}"
        raise InputError("dataset.test_rows", rows, rule, "lower it, or give a test file")
    digests = np.frombuffer(hashes, np.dtype(hashes.typecode))
    largest = int(np.partition(digests, rows - 1)[rows - 1])
    if largest == digests.max():
        different = len(np.unique(digests))
        rule = (
            f"holds out all {len(hashes)} rows of {files[0]}: they have {different} different question(s), "
            "and rows with equal questions stay together"
        )
        remedy = "lower it, or give a test file or more different questions"
        raise InputError("dataset.test_rows", rows, rule, remedy)

    def read(file: Path, held_out: bool) -> Iterator[Row | BadLine]:
        for row in read_lines(file, columns, with_all):
            if (isinstance(row, Row) and digest(row.prompt) <= largest) == held_out:
                yield row

    return partial(read, held_out=False), partial(read, held_out=True)


def written_rows(rows: Rows[Row], records: Path) -> Iterator[Row]:
    """Yield the rows that stage tokenize wrote to `records`, in order: without those that it left out."""
    ledger = records.with_suffix(DROPPED)
    entries = map(json.loads, ledger.read_text(encoding="utf-8").splitlines() if ledger.is_file() else [])
    left_out = {(entry["source"], entry["line"]) for entry in entries if entry["file"] == records.name}
    used = 0
    for file in rows.files:
        readable = (row for row in rows.read(file) if isinstance(row, Row))
        for row in islice(readable, None if rows.limit is None else rows.limit - used):
            used += 1
            if (file.name, row.line) not in left_out:
                yield row


def digest(prompt: str) -> int:
    """Return a number that depends only on the text, unlike hash()."""
    return zlib.crc32(prompt.encode("utf-8"))


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
