"""MindRecord files of fixed-length id columns: batched writing, and reading that refuses a broken pair.

A MindRecord is a pair, NAME and NAME.db (an SQLite index). The base name stands inside both, and the
reader of MindSpore 2.7 ends in a segmentation fault when they do not belong together.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
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
PAGES = 16  # that a file is cut into while they are small
PAGE_ENTRY = 256  # bytes that one page takes in the header, at most
ROW_FRAME = 64  # bytes that a row takes beside its values, at most
HEADER_KEYS = {"shard_addresses", "page", "header_size", "page_size", "schema"}

Dtype = Literal["int64", "int32"]


def file_sizes(rows: int, row_bytes: int) -> tuple[int, int]:
    """Page and header size in bytes (powers of two) for at most `rows` rows of `row_bytes` uncompressed.

    MindRecord's defaults (32 MiB and 16 MiB) make the smallest file 50 MB large.
    """
    # two bits per value and up to four wasted rows per page come on top
    total = rows * (row_bytes + row_bytes // 8 + ROW_FRAME)
    page = min(LARGEST_PAGE, _power_of_two(max(SMALLEST_PAGE, total // PAGES)))
    page = max(page, _power_of_two(4 * (row_bytes + row_bytes // 8 + ROW_FRAME)))
    return page, _power_of_two(max(SMALLEST_HEADER, PAGE_ENTRY * (2 * total // page + 4)))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


class RecordWriter:
    """Writes one MindRecord pair; `with RecordWriter(...) as writer: writer.write(...)`.

    Leaving the block completes both files and checks that every row is in the index.
    """

    def __init__(self, file: Path, lengths: Mapping[str, int], dtype: Dtype, rows: int) -> None:
        """Open the file.

        Args:
            file: must not exist; its name is stored inside and can't be changed later.
            lengths: column name -> tokens per row.
            dtype: of all columns.
            rows: how many rows to expect at most; decides page and header size.
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
        with _translate_errors(self.file):
            for start in range(0, rows, BATCH):
                batch = {name: values[start : start + BATCH] for name, values in columns.items()}
                self._records.add(
                    {name: part.astype(self._dtype, copy=False) for name, part in batch.items()}
                )
        self.rows += rows

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if not self.rows:
            raise InputError(self.file, 0, "needs at least one row", "write some")
        with _translate_errors(self.file):
            self._records.close()
        problem = check_pair(self.file)
        if problem != self.rows:
            rule = f"must hold the {self.rows} rows written"
            raise InputError(self.file, problem, rule, "report this as a defect")


@contextlib.contextmanager
def _translate_errors(file: Path) -> Iterator[None]:
    """Name the file when the disk is full or read-only."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        raise InputError(
            file, None, f"can't be written: {error}", "free space, or use another store"
        ) from error


def index_file(file: Path) -> Path:
    """Return the SQLite index that belongs to a MindRecord file."""
    return file.with_name(file.name + ".db")


def check_pair(file: Path) -> int:
    """Refuse a MindRecord whose two files do not belong together.

    Compares the names stored in both and where the last row of every page ends. The content of the
    rows is not looked at (MindRecord has no checksum; the artifact's manifest has one).

    Returns:
        the number of rows.

    Raises:
        InputError: a file is missing, malformed, renamed, or from another pair.
    """
    with understood(file, "a MindRecord", "write it again"):
        return _check_pair(file)


def _check_pair(file: Path) -> int:
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
