"""MindRecord files of fixed-length id columns: batched writing, and reading that refuses a broken pair.

A MindRecord is a pair, NAME and NAME.db (an SQLite index). The base name stands inside both, and the
reader of MindSpore 2.7 ends in a segmentation fault when they do not belong together.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from stages.errors import InputError
from stages.weights.dtypes import Array

BATCH = 256  # rows per write call: measured fastest between 100 and 256
SMALLEST_PAGE = 1 << 15  # MindRecord's minimum; its default of 32 MiB makes every file 50 MB large
SMALLEST_HEADER = 1 << 14
PAGES = 16  # pages that a small file is cut into; 16 KiB of header hold about 80
LARGE_BYTES = 1 << 28  # from here on MindRecord's own page and header sizes fit

HEADER_KEYS = {"shard_addresses", "page", "header_size", "page_size", "schema"}

Dtype = Literal["int64", "int32"]


def page_size(rows: int, row_bytes: int) -> int | None:
    """Page size in bytes (a power of two) for `rows` rows; None: leave MindRecord's default.

    A page must hold at least one row, and all pages must be listed in the header.
    """
    if rows * row_bytes >= LARGE_BYTES:
        return None
    # raw pages hold about 13 bytes a row, blob pages the columns
    wanted = max(SMALLEST_PAGE, 2 * row_bytes, rows * row_bytes // PAGES, rows)
    return 1 << math.ceil(math.log2(wanted))


class RecordWriter:
    """Writes one MindRecord pair; `with RecordWriter(...) as writer: writer.write(...)`.

    Leaving the block commits and checks that every row arrived: MindRecord drops rows that do not fit
    the schema with no more than a log line.
    """

    def __init__(self, file: Path, lengths: Mapping[str, int], dtype: Dtype, rows: int) -> None:
        """Open the file.

        Args:
            file: must not exist; its name is stored inside and can't be changed later.
            lengths: column name -> tokens per row.
            dtype: of all columns.
            rows: how many rows to expect at most; decides the page size only.
        """
        from mindspore.mindrecord import FileWriter

        self.file = file
        self.rows = 0
        self._dtype = np.dtype(dtype)
        self._writer = FileWriter(str(file), shard_num=1, overwrite=False)
        size = page_size(rows, sum(lengths.values()) * self._dtype.itemsize)
        if size is not None:
            self._writer.set_header_size(SMALLEST_HEADER)
            self._writer.set_page_size(size)
        self._writer.add_schema({name: {"type": dtype, "shape": [-1]} for name in lengths})

    def write(self, columns: Mapping[str, Array]) -> None:
        """Append rows.

        Args:
            columns: name -> integer array [rows, length].
        """
        arrays = {name: values.astype(self._dtype, copy=False) for name, values in columns.items()}
        rows = len(next(iter(arrays.values())))
        for start in range(0, rows, BATCH):
            stop = min(start + BATCH, rows)
            batch = [{name: values[i] for name, values in arrays.items()} for i in range(start, stop)]
            self._writer.write_raw_data(batch)
        self.rows += rows

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        if not self.rows:
            raise InputError(self.file, 0, "no row is left to write", "see the reasons in dropped.jsonl")
        self._writer.commit()
        for path in (self.file, index_file(self.file)):
            path.chmod(0o666 & ~_umask())  # MindRecord makes them 0600 whatever the umask is
        found = check_pair(self.file)
        if found != self.rows:
            rule = f"must hold the {self.rows} rows written"
            raise InputError(self.file, found, rule, "report this as a defect")


def index_file(file: Path) -> Path:
    """The SQLite index that belongs to a MindRecord file."""
    return file.with_name(file.name + ".db")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_pair(file: Path) -> int:
    """Refuse a MindRecord whose two files do not belong together.

    Compares the names stored in both and where the last row of every page ends. The content of the
    rows is not looked at (MindRecord has no checksum; the artifact's manifest has one).

    Returns:
        the number of rows.

    Raises:
        InputError: a file is missing, malformed, renamed, or from another pair.
    """
    header = _read_header(file)
    names, rows, ends = _read_index(index_file(file))
    remedy = "write the pair again with the tokenize stage; never rename or copy one file alone"
    if names != [file.name] or [Path(name).name for name in header["shard_addresses"]] != [file.name]:
        raise InputError(file, names, "the stored name must be the file's name", remedy)
    pages = {}
    for page in header["page"]:
        if page["page_type"] == "BLOB_DATA":
            pages[page["page_id"]] = (page["end_row_id"] - page["start_row_id"], page["page_size"])
    if ends != pages:
        raise InputError(file, None, f"does not belong to {index_file(file).name}", remedy)
    size = file.stat().st_size
    last_page = header["header_size"] + header["page_size"] * max(page["page_id"] for page in header["page"])
    if size <= last_page:
        raise InputError(file, f"{size} bytes", f"must be longer than {last_page} bytes", remedy)
    return rows


def _read_header(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length if length < file.stat().st_size else 0))
        if not isinstance(header, dict) or HEADER_KEYS - set(header):
            raise ValueError(f"its header must have {', '.join(sorted(HEADER_KEYS))}")
    except OSError as error:
        raise InputError(file, None, f"can't be read: {error.strerror}", "run the tokenize stage") from error
    except ValueError as error:
        raise InputError(file, None, f"is not a MindRecord: {error}", "write it again") from error
    return header


def _read_index(path: Path) -> tuple[list[str], int, dict[int, tuple[int, int]]]:
    """Stored names, number of rows, and per page (rows, end of the last row in bytes)."""
    if not path.is_file():
        raise InputError(path, None, "is missing; a MindRecord is a pair of files", "copy both files")
    query = "SELECT PAGE_ID_BLOB, COUNT(*), MAX(PAGE_OFFSET_BLOB_END) FROM INDEXES GROUP BY PAGE_ID_BLOB"
    try:
        # immutable: inputs are read-only, and SQLite would otherwise want to put a lock file beside them
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            names = [Path(row[0]).name for row in connection.execute("SELECT NAME FROM SHARD_NAME")]
            pages = {page: (rows, end) for page, rows, end in connection.execute(query)}
    except sqlite3.Error as error:
        raise InputError(path, None, f"is not a MindRecord index: {error}", "write the pair again") from error
    return names, sum(rows for rows, _ in pages.values()), pages


def read_columns(file: Path, columns: Sequence[str]) -> dict[str, Array]:
    """Read whole columns through MindSpore's own reader, in the order of writing.

    Args:
        file: the MindRecord (its .db beside it).
        columns: names to read; each must have one length in all rows.

    Returns:
        name -> integer array [rows, length], dtype as stored.

    Raises:
        InputError: the pair is broken, or a column is missing.
    """
    rows = check_pair(file)
    known = _read_header(file)["schema"][0]["schema"]
    missing = [name for name in columns if name not in known]
    if missing:
        raise InputError(file, missing, f"columns are missing; it has {', '.join(sorted(known))}")
    from mindspore.dataset import MindDataset

    dataset = MindDataset(str(file), columns_list=list(columns), shuffle=False, num_parallel_workers=1)
    batches = list(dataset.batch(min(rows, BATCH)).create_dict_iterator(num_epochs=1, output_numpy=True))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in columns}
