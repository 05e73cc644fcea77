"""Rows held out for the test if a dataset has no test file."""

import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stages.base.errors import InputError
from stages.fetch.config import ColumnsConfig
from stages.fetch.jsonl import Row, read_lines
from stages.fetch.records import BadLine


class HoldOut:
    """A division of the rows of some files by the digest of their question.

    The test gets the smallest digests. This does not depend on the order of the rows, spreads the test over
    files that are sorted by difficulty, and keeps equal questions on one side.
    """

    def __init__(self, files: Sequence[Path], columns: ColumnsConfig, rows: int) -> None:
        """Read all questions once.

        Args:
            files: of the training split.
            columns: keys of question and answer.
            rows: number to hold out; repeated questions may make it a few more.

        Raises:
            InputError: nothing would be left to train on.
        """
        self._columns = columns
        hashes = array("I")
        for file in files:
            hashes.extend(digest(row.prompt) for row in read_lines(file, columns) if isinstance(row, Row))
        if rows >= len(hashes):
            rule = f"must be below the {len(hashes)} usable rows of {files[0]}"
            raise InputError("dataset.test_rows", rows, rule, "lower it, or give a test file")
        digests = np.frombuffer(hashes, np.dtype(hashes.typecode))
        self._largest = int(np.partition(digests, rows - 1)[rows - 1])

    def read_train(self, file: Path) -> Iterator[Row | BadLine]:
        """Yield the rows for training, and all bad lines."""
        for row in read_lines(file, self._columns):
            if isinstance(row, BadLine) or digest(row.prompt) > self._largest:
                yield row

    def read_test(self, file: Path) -> Iterator[Row | BadLine]:
        """Yield the held-out rows."""
        for row in read_lines(file, self._columns):
            if isinstance(row, Row) and digest(row.prompt) <= self._largest:
                yield row


def digest(prompt: str) -> int:
    """Return a number that depends only on the text, unlike hash()."""
    return zlib.crc32(prompt.encode("utf-8"))
