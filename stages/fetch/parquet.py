"""Rows of a Parquet file as plain mappings, in batches, through pyarrow (an optional package)."""

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.fetch.records import BadLine, Record

ROWS = 256
BUFFER = 1 << 20  # bytes read ahead per column; without it pyarrow reads complete row groups


def read_parquet(path: Path, keys: Sequence[str] = ()) -> Iterator[Record | BadLine]:
    """Yield every row of `path`, with the columns `keys` only (none: all).

    Raises:
        InputError: pyarrow is missing, none of the columns exists, two columns have the same name, or the
            file can't be read (the next row is named).
    """
    arrow = _import_arrow(path)
    row = 0
    try:
        open_regular(path).close()  # pyarrow would wait for the writer of a pipe
        # plain reads: a memory map would count the complete file as this process's memory
        with arrow.ParquetFile(path, memory_map=False, buffer_size=BUFFER, pre_buffer=False) as file:
            columns = _columns(path, file.schema_arrow.names, keys)
            for batch in file.iter_batches(batch_size=ROWS, columns=columns, use_threads=False):
                for values in batch.to_pylist():
                    row += 1
                    yield Record(row, values)
    except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
        reason = (str(error) or type(error).__name__).splitlines()[0]
        remedy = "check the path, or fetch the file again"
        raise InputError(f"{path}:{row + 1} (row)", None, f"can't be read: {reason}", remedy) from error


def _columns(path: Path, names: Sequence[str], keys: Sequence[str]) -> list[str]:
    equal = [name for name, count in Counter(names).items() if count > 1]
    if equal:
        raise InputError(path, equal, "columns must have different names", "rename or remove them")
    columns = [name for name in names if name in keys or not keys]
    if not columns:
        raise InputError(path, list(keys), f"has no such column (it has: {', '.join(names)})")
    return columns


def count_rows(path: Path) -> int:
    """Return the number of rows in the footer; 1 if it can't be read (reading the rows reports why)."""
    try:
        open_regular(path).close()
        return int(_import_arrow(path).read_metadata(path).num_rows)
    except (OSError, ValueError):
        return 1


def _import_arrow(path: Path) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        remedy = "pip install 'grpoflow[parquet]'"
        raise InputError(path, None, f"Parquet needs the package pyarrow: {error}", remedy) from error
