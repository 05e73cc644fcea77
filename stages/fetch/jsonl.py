"""Questions and answers, read from JSON lines, a JSON array or Parquet."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stages.fetch.config import ColumnsConfig
from stages.fetch.records import BadLine, read_records, text_fault


@dataclass(frozen=True)
class Row:
    """One usable row."""

    line: int
    """Counted from 1, as editors do; in a JSON array or Parquet file the row."""
    prompt: str
    answer: str


def read_lines(path: Path, columns: ColumnsConfig) -> Iterator[Row | BadLine]:
    """Yield every row of `path` in order, one at a time, so that a file larger than memory can be read.

    Raises:
        InputError: the file is missing or can't be read.
    """
    keys = (columns.prompt, columns.answer)
    for record in read_records(path, keys, required=True):
        if isinstance(record, BadLine):
            yield record
        elif fault := text_fault(record.values, keys[0]) or text_fault(record.values, keys[1]):
            yield BadLine(record.line, fault)
        else:
            yield Row(record.line, *(record.values[key] for key in keys))
