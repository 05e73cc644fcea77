"""MindRecord files of fixed-length id columns: batched writing, and reading that refuses a broken pair.

A MindRecord is a pair, NAME and NAME.db (an SQLite index). Both contain the base name, and the reader of
MindSpore 2.7 ends in a segmentation fault if they do not belong together.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stages.base.errors import InputError
from stages.base.files import open_regular, parse_json, understood
from stages.tokenize.mindrecord import MindRecordFile
from stages.weights.dtypes import Array

BATCH = 256  # rows that are compressed or read at once: little enough for the processor's caches
SMALLEST_PAGE, LARGEST_PAGE = 1 << 15, 1 << 25  # MindRecord's minimum and default
SMALLEST_HEADER = 1 << 14  # MindRecord's minimum
PAGES = 16  # of a small file
PAGE_ENTRY = 256  # upper limit of one page's bytes in the header
ROW_FRAME = 64  # upper limit of a row's bytes besides its values
HEADER_KEYS = {"shard_addresses", "page", "header_size", "page_size", "schema"}

Dtype = Literal["int64", "int32"]


def file_sizes(rows: int, row_bytes: int) -> tuple[int, int]:
    """Return page and header size in bytes (powers of two) for `rows` rows of `row_bytes` uncompressed.

    MindRecord's defaults (32 MiB and 16 MiB) make the smallest file 50 MB large.
    """
    stored = row_bytes + row_bytes // 8 + ROW_FRAME  # two bits per value come on top
    total = rows * stored
    page = min(LARGEST_PAGE, _power_of_two(max(SMALLEST_PAGE, total // PAGES)))
    page = max(page, _power_of_two(4 * stored))  # a page may waste the space of up to one row
    return page, _power_of_two(max(SMALLEST_HEADER, PAGE_ENTRY * (2 * total // page + 4)))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


class RecordWriter:
    """Writer of one MindRecord pair; `with RecordWriter(...) as writer: writer.write(...)`.

    Leaving the block completes both files and checks that every row is in the index.
    """

    def __init__(self, file: Path, lengths: Mapping[str, int], dtype: Dtype, rows: int) -> None:
        """Open the file.

        Args:
            file: must not exist; its name is stored inside and can't be changed later.
            lengths: column name -> tokens per row.
            dtype: of all columns.
            rows: upper limit of rows; decides page and header size.
        """
        self.file = file
        self.rows = 0
        self._dtype = np.dtype(dtype)
        page, header = file_sizes(rows, sum(lengths.values()) * self._dtype.itemsize)
        self._records = MindRecordFile(file, list(lengths), dtype, page, header)

    def write(self, columns: Mapping[str, Array]) -> None:
        """Append rows.

        Args:
            columns: name -> integer array [rows, length].
        """
        rows = len(next(iter(columns.values())))
        for start in range(0, rows, BATCH):
            part = slice(start, start + BATCH)
            self._records.add(
                {name: values[part].astype(self._dtype, copy=False) for name, values in columns.items()}
            )
        self.rows += rows

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if not self.rows:
            raise InputError(self.file, 0, "needs at least one row", "write some")
        self._records.close()
        rows = check_pair(self.file)
        if rows != self.rows:
            rule = f"must hold the {self.rows} rows written"
            raise InputError(self.file, rows, rule, "report this as a defect")


def index_file(file: Path) -> Path:
    """Return the SQLite index that belongs to a MindRecord file."""
    return file.with_name(file.name + ".db")


def check_pair(file: Path) -> int:
    """Check that the two files of a MindRecord belong together; return the number of rows.

    Compares the names stored in both and where the last row of every page ends. It does not look at the
    rows (MindRecord has no checksum; the artifact's manifest has one).

    Raises:
        InputError: a file is missing, malformed, renamed, or from another pair.
    """
    remedy = "write the pair again with the tokenize stage; never rename or copy one file alone"
    with understood(file, "a MindRecord", "write it again"):
        header = _read_header(file)
        names, rows, ends = _read_index(index_file(file))
        if names != [file.name] or [Path(name).name for name in header["shard_addresses"]] != [file.name]:
            raise InputError(file, names, "the stored name must be the file's name", remedy)
        pages = {
            page["page_id"]: (page["end_row_id"] - page["start_row_id"], page["page_size"])
            for page in header["page"]
            if page["page_type"] == "BLOB_DATA"
        }
        if ends != pages:
            raise InputError(file, None, f"does not belong to {index_file(file).name}", remedy)
        last_page = max(page["page_id"] for page in header["page"])
        start = header["header_size"] + header["page_size"] * last_page
        size = file.stat().st_size
        if size <= start:
            raise InputError(file, f"{size} bytes", f"must be longer than {start} bytes", remedy)
        return rows


def _read_header(file: Path) -> dict[str, Any]:
    try:
        with open_regular(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = parse_json(stream.read(length if length < file.stat().st_size else 0))
        if not isinstance(header, dict) or HEADER_KEYS - set(header):
            raise ValueError(f"its header must have {', '.join(sorted(HEADER_KEYS))}")
    except OSError as error:
        raise InputError(file, None, f"can't be read: {error.strerror}", "run the tokenize stage") from error
    except ValueError as error:
        raise InputError(file, None, f"is not a MindRecord: {error}", "write it again") from error
    return header


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
    """Read complete columns through MindSpore's own reader, in the order of writing.

    Args:
        file: the MindRecord, next to its .db.
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
