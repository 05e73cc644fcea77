"""Training rows of a dataset before they are tokenized: generated, the user's, or fetched."""

from collections.abc import Iterator
from pathlib import Path

from stages.base.errors import InputError
from stages.fetch import arith
from stages.fetch.config import ColumnsConfig, DatasetConfig
from stages.fetch.records import BadLine, Row, read_lines, split_sources
from stages.fetch.user_files import split_files


def training_rows(
    dataset: DatasetConfig, columns: ColumnsConfig, seed: int, fetched: Path | None, count: int | None = None
) -> Iterator[Row]:
    """Yield the usable training rows with all columns, in order; those of generated data at most `count`.

    `fetched` is the artifact of fetch_dataset, if there is one.

    Raises:
        InputError: there is no file of the training split, or it can't be read.
    """
    if dataset.source == "builtin":
        if dataset.arith is None or dataset.train_rows is None:
            raise InputError("dataset.arith", None, "is required when dataset.source=builtin")
        pairs = arith.generate(dataset.arith, seed, count or dataset.train_rows, 1)[0]
        yield from (Row(line, *pair) for line, pair in enumerate(pairs, start=1))
        return
    yield from (row for row in _entries(dataset, columns, fetched) if isinstance(row, Row))


def first_bad_line(dataset: DatasetConfig, columns: ColumnsConfig, fetched: Path | None) -> BadLine | None:
    """Return the first row of the training files that cannot be used, if there is one."""
    return next((row for row in _entries(dataset, columns, fetched) if isinstance(row, BadLine)), None)


def _entries(dataset: DatasetConfig, columns: ColumnsConfig, fetched: Path | None) -> Iterator[Row | BadLine]:
    files = [*split_files(dataset)[0]] if fetched is None else split_sources(fetched, "train")
    if not files:
        raise InputError(fetched, None, "holds no file of the training split")
    for file in files:
        yield from read_lines(file, columns, with_all=True)
