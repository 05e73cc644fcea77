"""Questions and answers as JSON lines: reading with every fault named by file:line, and writing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.errors import InputError
from stages.fetch.config import ColumnsConfig

LISTED = 20  # bad lines that are named one by one; the rest is only counted


@dataclass(frozen=True)
class Row:
    """One usable line."""

    line: int
    """Counted from 1, as editors do."""
    prompt: str
    answer: str


@dataclass(frozen=True)
class BadLine:
    """One line that can't be used, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class FileCheck:
    """What a whole file holds."""

    rows: int
    bad: int
    listed: tuple[BadLine, ...]
    """The first bad lines."""


def read_lines(path: Path, columns: ColumnsConfig) -> Iterator[Row | BadLine]:
    """Every line of `path` in order, one at a time, so that a file larger than memory can be read.

    Raises:
        InputError: the file is missing or can't be read.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                yield _parse(number, raw, columns)
    except OSError as error:
        raise InputError(path, None, f"can't be read: {error.strerror}", "check the path") from error


def _parse(number: int, raw: bytes, columns: ColumnsConfig) -> Row | BadLine:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        if not text:
            return BadLine(number, "blank line")
        values = json.loads(text)
    except UnicodeDecodeError as error:
        return BadLine(number, f"not UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        return BadLine(number, f"not JSON: {error.msg} at column {error.colno}")
    except (RecursionError, ValueError) as error:
        return BadLine(number, f"not usable JSON: {type(error).__name__}")
    if not isinstance(values, dict):
        return BadLine(number, f"must be a JSON object, is {type(values).__name__}")
    texts = []
    for key in (columns.prompt, columns.answer):
        fault = _fault(values, key)
        if fault:
            return BadLine(number, fault)
        texts.append(values[key])
    return Row(number, *texts)


def _fault(values: dict[str, Any], key: str) -> str:
    if key not in values:
        return f"has no key {key!r} (it has: {', '.join(map(repr, list(values)[:8]))})"
    if not isinstance(values[key], str):
        return f"{key!r} must be text, is {type(values[key]).__name__}"
    if not values[key]:
        return f"{key!r} is empty"
    try:
        values[key].encode("utf-8")
    except UnicodeEncodeError:  # JSON's \ud800 escapes pass json.loads and crash every tokenizer
        return f"{key!r} holds half of a surrogate pair"
    return ""


def check_file(path: Path, columns: ColumnsConfig, max_bad_share: float) -> FileCheck:
    """Read `path` to the end and refuse it when too many lines are bad or none is good.

    Raises:
        InputError: more than `max_bad_share` of the lines are bad (the first is named), or no row is left.
    """
    rows, bad = 0, 0
    listed: list[BadLine] = []
    for entry in read_lines(path, columns):
        if isinstance(entry, Row):
            rows += 1
        else:
            bad += 1
            if len(listed) < LISTED:
                listed.append(entry)
    if bad and bad / (rows + bad) > max_bad_share:
        first = listed[0]
        more = f" ({bad} bad lines of {rows + bad}, {max_bad_share:.0%} tolerated)"
        remedy = "mend the lines, set dataset.columns, or raise dataset.max_bad_share"
        raise InputError(f"{path}:{first.line}", None, first.reason + more, remedy)
    if not rows:
        raise InputError(path, None, "holds no rows", "give a file of JSON lines")
    return FileCheck(rows, bad, tuple(listed))


def write_rows(path: Path, rows: Iterable[tuple[str, str]], columns: ColumnsConfig) -> None:
    """Write (prompt, answer) pairs as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for prompt, answer in rows:
            line = {columns.prompt: prompt, columns.answer: answer}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
