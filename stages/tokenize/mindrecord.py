"""MindRecord files written without MindSpore: integer columns in its format version 3.0.

MindSpore's FileWriter is slow because it looks up the schema for each row and compresses single values, and
importing it takes longer than tokenising; this writer compresses batches and skips the padding. MindSpore's
reader reads the result, and a small file is byte for byte the one that FileWriter writes (both are tested).
records.py reads the files where MindSpore need not be installed.

The file: 8 bytes (little-endian) length and JSON header, filled up to header_size; then pages of
page_size, of which only the last may be shorter:
- BLOB pages: per row 8 bytes (little-endian) length, then per column (sorted by name) 8 bytes
  (big-endian) length and the compressed values; a single column has no length of its own.
- RAW pages: per row 8 bytes length and a msgpack map {"id": 0}, since no column is stored as text.
Compressed values: 4 bytes (big-endian) count; two bits per value, first value in the highest bits,
saying that 1, 2, 4 or 8 bytes follow for it; the values, little-endian.
NAME.db: SQLite, the position of each row.

Source: mindspore 2.7.0, mindspore/ccsrc/minddata/mindrecord/io/shard_writer.cc, shard_column.cc and
shard_index_generator.cc.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.weights.dtypes import Array

BATCH = 256  # rows that are compressed or read at once: little enough for the processor's caches
SMALLEST_PAGE, LARGEST_PAGE = 1 << 15, 1 << 25  # MindRecord's minimum and default
SMALLEST_HEADER = 1 << 14  # MindRecord's minimum
PAGES = 16  # of a small file
PAGE_ENTRY = 256  # upper limit of one page's bytes in the header
ROW_FRAME = 64  # upper limit of a row's bytes besides its values
RAW_ROW = struct.pack("<Q", 5) + b"\x81\xa2id\x00"
TABLES = (
    # the reader asks for these columns by name
    "CREATE TABLE INDEXES(ROW_ID INT NOT NULL, PAGE_ID_RAW INT NOT NULL, PAGE_OFFSET_RAW INT NOT NULL,"
    " PAGE_OFFSET_RAW_END INT NOT NULL, ROW_GROUP_ID INT NOT NULL, PAGE_ID_BLOB INT NOT NULL,"
    " PAGE_OFFSET_BLOB INT NOT NULL, PAGE_OFFSET_BLOB_END INT NOT NULL, PRIMARY KEY(ROW_ID))",
    "CREATE TABLE SHARD_NAME(NAME TEXT NOT NULL)",
)


class MindRecordFile:
    """One file that is being written; leaving its `with` block completes it with its index."""

    def __init__(
        self, file: Path, columns: Sequence[str], dtype: str, page_size: int, header_size: int
    ) -> None:
        """Create the file, whose name is stored inside; all columns have one dtype, int64 or int32.

        page_size is a multiple of 4, at least 32 KiB, and no less than the longest row; header_size is at
        least 16 KiB.
        """
        self.file, self.columns, self.dtype = file, sorted(columns), dtype
        self.rows = 0
        self.page_size, self.header_size = page_size, header_size
        self._saved = 0
        self._page = bytearray()
        self._ends = array("I")
        self._groups: list[array[int]] = []  # per BLOB page: the end of each row
        self._pages: list[dict[str, Any]] = []
        self._stream = file.open("xb")

    @classmethod
    def for_rows(cls, file: Path, lengths: Mapping[str, int], dtype: str, rows: int) -> MindRecordFile:
        """Create a file with pages that suit at most `rows` rows of columns name -> values."""
        page, header = file_sizes(rows, sum(lengths.values()) * np.dtype(dtype).itemsize)
        return cls(file, list(lengths), dtype, page, header)

    def __enter__(self) -> MindRecordFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def write(self, columns: Mapping[str, Array]) -> None:
        """Append rows: name -> integers [rows, length]."""
        rows = len(columns[self.columns[0]])
        for start in range(0, rows, BATCH):
            batch = {name: values[start : start + BATCH] for name, values in columns.items()}
            self._append({name: values.astype(self.dtype, copy=False) for name, values in batch.items()})
        self.rows += rows

    def _append(self, columns: Mapping[str, Array]) -> None:
        packed = [pack(columns[name]) for name in self.columns]
        is_single = len(packed) == 1
        for parts in zip(*packed, strict=True):
            blob = b"".join(parts if is_single else (len(part).to_bytes(8, "big") + part for part in parts))
            if len(self._page) + 8 + len(blob) > self.page_size:
                self._flush()
            self._page += len(blob).to_bytes(8, "little") + blob
            self._ends.append(len(self._page))
            self._saved -= len(blob)
        plain = sum(columns[name][0].nbytes + (0 if is_single else 8) for name in self.columns)
        self._saved += len(packed[0]) * plain

    def close(self) -> None:
        """Write the last pages, the header and the index."""
        if self._ends:
            self._flush()
        rows = self._write_raw_pages()
        header = json.dumps(self._header(), separators=(",", ":")).encode()
        if len(header) + 8 > self.header_size:
            raise ValueError(f"header_size={self.header_size} is too small for {len(self._pages)} pages")
        self._stream.seek(0)
        self._stream.write(len(header).to_bytes(8, "little") + header)
        self._stream.close()
        with contextlib.closing(sqlite3.connect(f"{self.file}.db", isolation_level=None)) as database:
            # a crash leaves a staging directory, which is never read
            for statement in ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", "BEGIN", *TABLES):
                database.execute(statement)
            database.execute("INSERT INTO SHARD_NAME VALUES (?)", (self.file.name,))
            database.executemany("INSERT INTO INDEXES VALUES (?,?,?,?,?,?,?,?)", rows)
            database.execute("COMMIT")

    def _flush(self) -> None:
        """Write the current BLOB page and start another."""
        if not self._ends or len(self._page) > self.page_size:
            raise ValueError(f"page_size={self.page_size} is too small for one row")
        first = sum(map(len, self._groups))
        self._write_page(
            "BLOB_DATA", len(self._groups), self._page, [(0, 0)], (first, first + len(self._ends))
        )
        self._groups.append(self._ends)
        self._page, self._ends = bytearray(), array("I")

    def _write_raw_pages(self) -> Iterator[tuple[int, ...]]:
        """Write RAW pages, each with all rows of its BLOB pages; return the index's rows."""
        first, used = len(self._pages), 0
        raw_pages: list[list[tuple[int, int]]] = [[]]  # BLOB pages of each RAW page, with their offsets
        for group, ends in enumerate(self._groups):
            size = len(RAW_ROW) * len(ends)
            if used + size > self.page_size:
                raw_pages.append([])
                used = 0
            raw_pages[-1].append((group, used))
            used += size
        for number, groups in enumerate(raw_pages):
            rows = sum(len(self._groups[group]) for group, _ in groups)
            self._write_page("RAW_DATA", number, RAW_ROW * rows, groups, (0, 0))
        return self._index_rows(first, raw_pages)

    def _index_rows(self, first: int, pages: Sequence[list[tuple[int, int]]]) -> Iterator[tuple[int, ...]]:
        row = 0
        for raw_page, groups in enumerate(pages, start=first):
            for group, offset in groups:
                start = 0
                for end in self._groups[group]:
                    yield row, raw_page, offset, offset + len(RAW_ROW), group, group, start, end
                    start, row, offset = end, row + 1, offset + len(RAW_ROW)

    def _write_page(
        self,
        kind: str,
        number: int,
        data: bytes | bytearray,
        groups: Sequence[tuple[int, int]],
        rows: tuple[int, int],
    ) -> None:
        self._stream.seek(self.header_size + len(self._pages) * self.page_size)
        self._stream.write(data)
        entry = {
            "end_row_id": rows[1],
            "page_id": len(self._pages),
            "page_size": len(data),
            "page_type": kind,
            "page_type_id": number,
            "row_group_ids": [{"id": group, "offset": offset} for group, offset in groups],
            "shard_id": 0,
            "start_row_id": rows[0],
        }
        self._pages.append(entry)

    def _header(self) -> dict[str, Any]:
        fields = {name: {"shape": [-1], "type": self.dtype} for name in self.columns}
        return {
            "header_size": self.header_size,
            "index_fields": None,
            "page": self._pages,
            "page_size": self.page_size,
            "compression_size": max(self._saved, 1),  # 0 means that nothing is compressed
            "schema": [{"blob_fields": self.columns, "desc": "", "schema": fields}],
            "shard_addresses": [self.file.name],
            "shard_id": 0,
            "statistics": None,
            "version": "3.0",
        }


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


def pack(values: Array) -> list[bytes]:
    """Compress each row of an integer array [rows, length].

    Rows of ids end in long runs of the padding id, so the end that all rows have in common is packed once.
    """
    rows, length = values.shape
    differs = np.flatnonzero((values != values[0, -1]).any(axis=0))
    head = int(differs[-1]) + 1 if differs.size else 0
    head = min(-(-head // 4) * 4, length)  # a byte of the bitmap holds four values
    tail_bitmap, tail = _filler(int(values[0, -1]), length - head)
    padded = np.zeros((rows, -(-head // 4) * 4), np.int64)
    padded[:, :head] = values[:, :head]
    classes = (padded != padded.astype(np.int8)).astype(np.uint8)
    classes += padded != padded.astype(np.int16)
    classes += padded != padded.astype(np.int32)
    bitmaps = (classes.reshape(rows, -1, 4) @ np.array([64, 16, 4, 1], np.uint8)).astype(np.uint8)
    sizes = 1 << classes
    sizes[:, head:] = 0
    data = padded.astype("<i8").view(np.uint8).reshape(rows, -1, 8)[np.arange(8) < sizes[..., None]].tobytes()
    ends = np.cumsum(sizes.sum(axis=1)).tolist()
    count = length.to_bytes(4, "big")
    return [
        b"".join((count, bitmap.tobytes(), tail_bitmap, data[start:end], tail))
        for bitmap, start, end in zip(bitmaps, [0, *ends[:-1]], ends, strict=True)
    ]


def unpack(rows: Sequence[bytes]) -> Array:
    """Return the values [rows, length] of what `pack` made, as int64.

    Raises:
        ValueError: the rows differ in length, or one is damaged.
    """
    length = int.from_bytes(rows[0][:4], "big")
    start = 4 + -(-length // 4)  # behind the bitmap
    if any(row[:4] != rows[0][:4] or len(row) < start for row in rows):
        raise ValueError("rows differ in length")
    bitmaps = np.frombuffer(b"".join(row[4:start] for row in rows), np.uint8).reshape(len(rows), -1)
    classes = (bitmaps[..., None] >> np.array([6, 4, 2, 0], np.uint8) & 3).reshape(len(rows), -1)[:, :length]
    sizes = 1 << classes.astype(np.int64)
    if (sizes.sum(axis=1) != [len(row) - start for row in rows]).any():
        raise ValueError("values are missing")
    parts = np.zeros((*sizes.shape, 8), np.uint8)
    parts[np.arange(8) < sizes[..., None]] = np.frombuffer(b"".join(row[start:] for row in rows), np.uint8)
    unused = 64 - 8 * sizes  # bits above a value, which its sign fills
    values: Array = parts.view("<i8")[..., 0].astype(np.int64) << unused >> unused
    return values


def _filler(value: int, count: int) -> tuple[bytes, bytes]:
    """Return bitmap and data of one value repeated; the bitmap's last byte is filled up with zero bits."""
    kind = next(kind for kind in range(4) if -(1 << (8 << kind) - 1) <= value < 1 << (8 << kind) - 1)
    words, remainder = divmod(count, 4)
    bitmap = bytes([kind * 0b01010101]) * words
    if remainder:
        bitmap += bytes([kind * 0b01010101 & 0xFF << 2 * (4 - remainder) & 0xFF])
    return bitmap, value.to_bytes(1 << kind, "little", signed=True) * count
