"""Rows of a file, one at a time: JSON lines, a JSON array, or Parquet.

Errors name a row by its position, counted from 1: the line in JSON lines, else the row.
"""

import contextlib
import gzip
import importlib
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, cast

from stages.base.errors import InputError
from stages.base.files import open_regular, parse_json, understood
from stages.fetch.config import DATA_SUFFIXES, ColumnsConfig

LARGEST = 1 << 22
"""Upper limit of bytes of a line, and of characters of a text: about a million tokens.

A longer line usually means a file without line breaks; parsing it would need a hundred times its memory."""
TOO_LONG = f"is longer than {LARGEST >> 20} MiB"
SMALLEST_ROW = 16
"""Bytes that a JSON object with some text takes at least."""
CHECK_PATH = "check the path"
LARGEST_ARRAY = 1 << 32
"""Upper limit of bytes of a JSON array, which is read as a whole: a compressed file may hold any number."""
CONVERT = "convert it to JSON lines (.jsonl) or Parquet"
UNREAD = {
    ".csv": "a CSV file", ".tsv": "a TSV file", ".xlsx": "a spreadsheet", ".arrow": "an Arrow file",
    ".zst": "compressed with zstd", ".bz2": "compressed with bzip2", ".xz": "compressed with xz",
    ".zip": "a zip archive", ".tar": "a tar archive", ".tgz": "a tar archive",
}  # fmt: skip
"""Suffix -> description of files that would be read as malformed JSON lines."""
PARQUET_ROWS = 256
PARQUET_BUFFER = 1 << 20  # bytes read ahead per column; without it pyarrow reads complete row groups


@dataclass(frozen=True)
class Record:
    """One readable row as a plain mapping."""

    line: int
    values: dict[str, Any]


@dataclass(frozen=True)
class BadLine:
    """One row that can't be used, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class Row:
    """Question and answer of a usable row."""

    line: int
    """Counted from 1, as editors do; in a JSON array or Parquet file the row."""
    prompt: str
    answer: str
    columns: Mapping[str, Any] | None = None
    """All of the row's columns as the file has them, if they were asked for."""


def read_records(
    path: Path, keys: Sequence[str] = (), required: Sequence[str] = ()
) -> Iterator[Record | BadLine]:
    """Return an iterator over the rows of `path`; memory grows with the file only for a JSON array.

    Args:
        path: .parquet; .json, which may hold an array or JSON lines; anything else is JSON lines. The last
            two may be compressed (.gz).
        keys: columns to read from Parquet; none: all.
        required: refuse a Parquet file without one of these, because every row would be bad.
    """
    if reason := UNREAD.get(path.suffix.lower()):
        raise InputError(path, None, f"is {reason}, which is not read", CONVERT)
    suffix = data_suffix(path)
    if suffix == ".parquet":
        return _read_parquet(path, keys, required)
    with understood(path, "rows", CHECK_PATH), _opened(path) as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    is_array = suffix.startswith(".json") and not suffix.startswith(".jsonl") and not start.startswith(b"{")
    return _read_array(path) if is_array else _read_json_lines(path)


def read_lines(path: Path, columns: ColumnsConfig, with_all: bool = False) -> Iterator[Row | BadLine]:
    """Yield question and answer of every row of `path` in order, like read_records.

    `with_all`: the rows have all of their columns.

    Raises:
        InputError: the file is missing or can't be read.
    """
    keys = (columns.prompt, columns.answer)
    for record in read_records(path, () if with_all else keys, required=keys):
        if isinstance(record, BadLine):
            yield record
            continue
        values = {**record.values}
        if columns.prompt in values:
            values[columns.prompt] = _prompt_text(values[columns.prompt])
        if columns.answer in values:
            values[columns.answer] = _answer_text(values[columns.answer])
        if fault := _prompt_fault(values, columns.prompt) or _answer_fault(values, columns.answer):
            yield BadLine(record.line, fault)
        else:
            prompt, answer = (values[key] for key in keys)
            yield Row(record.line, prompt, answer, record.values if with_all else None)


def _prompt_text(value: Any) -> Any:
    """Return the text of a list of chat messages that is a single message of the user, else the value."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        message = value[0]
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            return message["content"]
    return value


def _answer_text(value: Any) -> Any:
    """Return a number, or the only one of a list of accepted answers, as text; other values as they are.

    18.0 becomes 18, because tables turn whole numbers with gaps into floats.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, float) and math.isfinite(value):
        value = Decimal(repr(value))
    if isinstance(value, Decimal) and value.is_finite():
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _prompt_fault(values: dict[str, Any], key: str) -> str:
    if not isinstance(messages := values.get(key), list):
        return text_fault(values, key)
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    if not roles or None in roles:
        return f'{key!r} must be text, or a list with a single message {{"role": "user", "content": "…"}}'
    if roles == ["user"]:
        return f"{key!r} must be text: the content of its message is none, for example because it has parts"
    found = ", ".join(map(str, roles))
    return (
        f"{key!r} must be text, or a list with a single message of role user, has {found}: "
        "move a system message to tokenize.system_prompt, and leave out other turns"
    )


def _answer_fault(values: dict[str, Any], key: str) -> str:
    if isinstance(answers := values.get(key), list):
        return (
            f"{key!r} must be one answer, is a list of {len(answers)}: keep the one that rewards compare with"
        )
    return text_fault(values, key)


def data_suffix(path: Path) -> str:
    """Return the one of DATA_SUFFIXES that says how a file is read, in any case; .jsonl for other names."""
    name = path.name.lower()
    suffixes = [suffix for suffix in DATA_SUFFIXES if name.endswith(suffix)]
    return suffixes[0] if suffixes else ".jsonl.gz" if name.endswith(".gz") else ".jsonl"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, and decompress it if it is compressed; a damaged one raises OSError."""
    with open_regular(path) as file:
        if not data_suffix(path).endswith(".gz"):
            yield file
            return
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as plain:
                yield cast(BinaryIO, plain)
        except (EOFError, zlib.error) as error:
            raise OSError(f"its compressed data is damaged: {error}") from error


def _read_json_lines(path: Path) -> Iterator[Record | BadLine]:
    with understood(path, "rows", CHECK_PATH), _opened(path) as file:
        for number, raw in enumerate(_lines(file), start=1):
            yield _parse_line(number, raw)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the bytes of every line; None for a line that is too long."""
    while raw := file.readline(LARGEST + 1):
        if len(raw) <= LARGEST:
            yield raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(LARGEST)
        yield None


def _parse_line(number: int, raw: bytes | None) -> Record | BadLine:
    if raw is None:
        return BadLine(number, TOO_LONG)
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
    return _as_record(number, values)


def _as_record(number: int, values: Any) -> Record | BadLine:
    if isinstance(values, dict):
        return Record(number, values)
    return BadLine(number, f"must be a JSON object, is {type(values).__name__}")


def _read_array(path: Path) -> Iterator[Record | BadLine]:
    """Yield the elements of a JSON array. The complete file is in memory."""
    with understood(path, "a JSON array or JSON lines", "correct it, or give one of them"):
        with _opened(path) as file:
            blocks, size = [], 0
            while block := file.read(1 << 20):
                blocks.append(block)
                size += len(block)
                if size > LARGEST_ARRAY:
                    raise ValueError(f"its array is longer than {LARGEST_ARRAY >> 30} GiB")
        rows = parse_json(b"".join(blocks))
        if not isinstance(rows, list):
            raise TypeError(f"it is a {type(rows).__name__}")
    for number, values in enumerate(rows, start=1):
        yield _as_record(number, values)


def _read_parquet(path: Path, keys: Sequence[str], required: Sequence[str]) -> Iterator[Record | BadLine]:
    """Yield every row of `path`, with the columns `keys` only (none: all)."""
    arrow = _import_arrow()
    row = 0
    try:
        open_regular(path).close()  # pyarrow would wait for the writer of a pipe
        # plain reads: a memory map would count the complete file as this process's memory
        with arrow.ParquetFile(path, memory_map=False, buffer_size=PARQUET_BUFFER, pre_buffer=False) as file:
            columns = _columns(path, file.schema_arrow.names, keys, required)
            for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=columns, use_threads=False):
                for values in batch.to_pylist():
                    row += 1
                    yield Record(row, values)
    except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
        reason = (str(error) or type(error).__name__).splitlines()[0]
        remedy = "check the path, or fetch the file again"
        raise InputError(f"{path}:{row + 1} (row)", None, f"can't be read: {reason}", remedy) from error


def _columns(path: Path, names: Sequence[str], keys: Sequence[str], required: Sequence[str]) -> list[str]:
    equal = [name for name, count in Counter(names).items() if count > 1]
    if equal:
        raise InputError(path, equal, "columns must have different names", "rename or remove them")
    columns = [name for name in names if name in keys or not keys]
    missing = [key for key in required if key not in names]
    if not columns or missing:
        raise InputError(path, missing, f"has no such column (it has: {', '.join(names)})")
    return columns


def _import_arrow() -> Any:
    return importlib.import_module("pyarrow.parquet")  # 0.1 s, which few datasets need


def count_rows(files: Sequence[Path]) -> int:
    """Return an upper limit of the usable rows of some files, without parsing them.

    It counts lines of JSON lines, rows of Parquet, and the opening braces of a JSON array.

    Raises:
        InputError: a file can't be read.
    """
    return sum(map(_count, files))


def _count(file: Path) -> int:
    with understood(file, "rows", CHECK_PATH), _opened(file) as stream:
        if data_suffix(file) == ".parquet":  # pyarrow's errors are ValueError or OSError
            return int(_import_arrow().read_metadata(stream).num_rows)
        sign = b"{" if data_suffix(file) in (".json", ".json.gz") else b"\n"
        lines = sum(block.count(sign) for block in iter(lambda: stream.read(1 << 20), b"")) + 1
        return min(lines, stream.tell() // SMALLEST_ROW + 1) if sign == b"{" else lines


def split_sources(directory: Path, split: str, any_suffix: bool = False) -> list[Path]:
    """Return the files of a fetched split, SPLIT.* or SPLIT-00000.* and so on, in order.

    `any_suffix`: also files that are no tables of rows.
    """
    suffixes = r"\..*" if any_suffix else "|".join(map(re.escape, DATA_SUFFIXES))
    pattern = re.compile(rf"{split}(-\d+)?({suffixes})")
    return sorted(file for file in directory.iterdir() if pattern.fullmatch(file.name))


def row_position(path: Path, line: int) -> str:
    """Return a row's name for messages: FILE:LINE, or "FILE:ROW (row)" if rows are not lines."""
    return f"{path}:{line}" if data_suffix(path).startswith(".jsonl") else f"{path}:{line} (row)"


def text_fault(values: dict[str, Any], key: str) -> str:
    """Return why the value at `key` is not usable text; an empty string if it is."""
    if key not in values:
        return f"has no key {key!r} (it has: {', '.join(map(repr, list(values)[:8]))})"
    if not isinstance(values[key], str):
        return f"{key!r} must be text, is {type(values[key]).__name__}"
    if len(values[key]) > LARGEST:
        return f"{key!r} {TOO_LONG}"
    if not values[key]:
        return f"{key!r} is empty"
    return encoding_fault(values[key], key)


def encoding_fault(text: str, key: str) -> str:
    """Return why `text` cannot be written as UTF-8; an empty string if it can."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # JSON's \ud800 escapes pass json.loads and crash every tokenizer
        return f"{key!r} holds half of a surrogate pair"
    return ""
