"""One row of a file, readable or not."""

from dataclasses import dataclass
from typing import Any

LARGEST = 1 << 22
"""Upper limit of bytes of a line, and of characters of a text or an array's element: about a million tokens.

A longer line usually means a file without line breaks; reading it would need a hundred times its memory."""
TOO_LONG = f"is longer than {LARGEST >> 20} MiB"


@dataclass(frozen=True)
class Record:
    """One readable row."""

    line: int
    values: dict[str, Any]


@dataclass(frozen=True)
class BadLine:
    """One row that can't be used, and why."""

    line: int
    reason: str


def as_record(number: int, values: Any) -> Record | BadLine:
    """Return a parsed row; everything but an object is a bad line."""
    if isinstance(values, dict):
        return Record(number, values)
    return BadLine(number, f"must be a JSON object, is {type(values).__name__}")
