"""Questions and answers: rows read from JSON lines, a JSON array or Parquet, and written as JSON lines."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import InputError
from stages.fetch.config import ColumnsConfig
from stages.fetch.records import BadLine, read_records, row_position, text_fault

LISTED = 20
"""Bad lines that are listed; the others are only counted."""


@dataclass(frozen=True)
class Row:
    """One usable row."""

    line: int
    """Counted from 1, as editors do; in a JSON array or Parquet file the row."""
    prompt: str
    answer: str


@dataclass(frozen=True)
class SplitCheck:
    """Summary of a split's rows."""

    rows: int
    bad: int
    listed: tuple[BadLine, ...]


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


def check_split(paths: Sequence[Path], columns: ColumnsConfig, max_bad_share: float) -> SplitCheck:
    """Read the files of a split; refuse it if more than `max_bad_share` of its lines are bad, or all are."""
    rows = bad = 0
    listed: list[tuple[Path, BadLine]] = []
    for path in paths:
        for entry in read_lines(path, columns):
            if isinstance(entry, Row):
                rows += 1
            else:
                bad += 1
                listed += [(path, entry)] if bad <= LISTED else []
    if bad and bad / (rows + bad) > max_bad_share:
        file, line = listed[0]
        rule = f"{line.reason} ({bad} bad lines of {rows + bad}, {max_bad_share:.1%} tolerated)"
        last = "raise dataset.max_bad_share" if rows else "give JSON lines, a JSON array or Parquet"
        remedy = f"correct the lines, set dataset.columns, or {last}"
        raise InputError(row_position(file, line.line), None, rule, remedy)
    if paths and not rows:
        raise InputError(paths[0], None, "holds no rows", "give JSON lines, a JSON array or Parquet")
    return SplitCheck(rows, bad, tuple(line for _, line in listed))


def write_rows(path: Path, rows: Iterable[tuple[str, str]], columns: ColumnsConfig) -> None:
    """Write (prompt, answer) pairs as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for prompt, answer in rows:
            line = {columns.prompt: prompt, columns.answer: answer}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
