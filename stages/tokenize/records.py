"""Reading of MindRecord files without MindSpore, which refuses a broken pair.

A MindRecord is a pair, NAME and NAME.db (an SQLite index). Both contain the base name, and the reader of
MindSpore 2.7 ends in a segmentation fault if they do not belong together. mindrecord.py tells the format.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stages.base.errors import InputError
from stages.base.files import open_regular, parse_json, understood
from stages.tokenize.mindrecord import BATCH, unpack
from stages.weights.dtypes import Array


def check_pair(file: Path) -> int:
    """Check that the two files of a MindRecord belong together; return the number of rows.

    Compares the names stored in both and where the last row of every page ends, but no rows: MindRecord has
    no checksum. Raise InputError if a file is missing, malformed, renamed, or from another pair.
    """
    return _read_pair(file)[0]


def _read_pair(file: Path) -> tuple[int, Mapping[str, Any]]:
    """Check a pair; return the number of rows and the file's header."""
    remedy = "write the pair again with the tokenize stage; never rename or copy one file alone"
    index = file.with_name(file.name + ".db")
    with understood(file, "a MindRecord", "write it again"):
        with open_regular(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = parse_json(stream.read(length if length < file.stat().st_size else 0))
        names, rows, ends = _read_index(index)
        if names != [file.name] or [Path(name).name for name in header["shard_addresses"]] != [file.name]:
            raise InputError(file, names, "the stored name must be the file's name", remedy)
        pages = {
            page["page_id"]: (page["end_row_id"] - page["start_row_id"], page["page_size"])
            for page in header["page"]
            if page["page_type"] == "BLOB_DATA"
        }
        if ends != pages:
            raise InputError(file, None, f"does not belong to {index.name}", remedy)
        last_page = max(page["page_id"] for page in header["page"])
        start = header["header_size"] + header["page_size"] * last_page
        size = file.stat().st_size
        if size <= start:
            raise InputError(file, f"{size} bytes", f"must be longer than {start} bytes", remedy)
        columns = header["schema"][0]["schema"]
        if any(column["type"] not in ("int32", "int64") for column in columns.values()):
            raise InputError(file, None, "must have columns of integers", remedy)
        return rows, header


def _read_index(path: Path) -> tuple[list[str], int, dict[int, tuple[int, int]]]:
    """Return stored names, number of rows, and per page (rows, end of the last row in bytes)."""
    if not path.is_file():
        raise InputError(path, None, "is missing; a MindRecord is a pair of files", "copy both files")
    query = "SELECT PAGE_ID_BLOB, COUNT(*), MAX(PAGE_OFFSET_BLOB_END) FROM INDEXES GROUP BY PAGE_ID_BLOB"
    try:
        # immutable: SQLite would otherwise try to create a lock file in a read-only directory
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            names = [Path(row[0]).name for row in connection.execute("SELECT NAME FROM SHARD_NAME")]
            pages = {page: (rows, end) for page, rows, end in connection.execute(query)}
    except sqlite3.Error as error:
        raise InputError(path, None, f"is not a MindRecord index: {error}", "write the pair again") from error
    return names, sum(rows for rows, _ in pages.values()), pages


def read_columns(file: Path, columns: Sequence[str]) -> dict[str, Array]:
    """Read complete columns, each of rows of one length, in the order of writing.

    Return name -> integer array [rows, length], dtype as stored.

    Raises:
        InputError: the pair is broken, or a column is missing.
    """
    _, header = _read_pair(file)
    types = {name: column["type"] for name, column in header["schema"][0]["schema"].items()}
    missing = [name for name in columns if name not in types]
    if missing:
        raise InputError(file, missing, f"columns are missing; it has {', '.join(sorted(types))}")
    parts: dict[str, list[Array]] = {name: [] for name in columns}
    with understood(file, "a MindRecord", "write it again"), open_regular(file) as stream:
        rows = (_fields(row, sorted(types)) for row in _rows(stream, header))
        while batch := list(itertools.islice(rows, BATCH)):
            for name in columns:
                parts[name].append(unpack([fields[name] for fields in batch]).astype(types[name], copy=False))
        return {name: np.concatenate(values) for name, values in parts.items()}


def _rows(stream: BinaryIO, header: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the rows of all BLOB pages, in the order of writing."""
    pages = (page for page in header["page"] if page["page_type"] == "BLOB_DATA")
    for page in sorted(pages, key=lambda page: int(page["page_type_id"])):
        stream.seek(header["header_size"] + page["page_id"] * header["page_size"])
        content = io.BytesIO(_exactly(stream, page["page_size"]))
        for _ in range(page["start_row_id"], page["end_row_id"]):
            yield _exactly(content, int.from_bytes(_exactly(content, 8), "little"))


def _fields(row: bytes, columns: Sequence[str]) -> dict[str, bytes]:
    """Return the compressed values of each column of a row."""
    if len(columns) == 1:
        return {columns[0]: row}
    content = io.BytesIO(row)
    return {name: _exactly(content, int.from_bytes(_exactly(content, 8), "big")) for name in columns}


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Read `size` bytes; raise ValueError if there are fewer."""
    content = stream.read(size)
    if len(content) != size:
        raise ValueError(f"{len(content)} bytes where {size} are expected")
    return content
