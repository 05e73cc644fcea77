"""A Parquet file's rows as plain mappings, in batches, through pyarrow (an optional package)."""

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.fetch.record import BadLine, Record

ROWS = 256
BUFFER = 1 << 20  # bytes that are read ahead per column; without it whole row groups are


def read_parquet(path: Path, keys: Sequence[str] = ()) -> Iterator[Record | BadLine]:
    """Yield every row of `path`, with the columns `keys` only (none named: all).

    Raises:
        InputError: pyarrow is missing, none of the columns is there, two columns have the same name, or the
            file can't be read (the row that comes next is named).
    """
    arrow = require_arrow(path)
    row = 0
    try:
        open_regular(path).close()  # of a pipe, Arrow would wait for a writer
        # plain reads: a memory map would count the whole file as this process's memory
        with arrow.ParquetFile(path, memory_map=False, buffer_size=BUFFER, pre_buffer=False) as file:
            known = file.schema_arrow.names
            equal = [name for name, count in Counter(known).items() if count > 1]
            if equal:
                raise InputError(path, equal, "columns must have different names", "rename or remove them")
            columns = [name for name in known if name in keys or not keys]
            if not columns:
                raise InputError(path, list(keys), f"has no such column (it has: {', '.join(known)})")
            for batch in file.iter_batches(batch_size=ROWS, columns=columns, use_threads=False):
                for values in batch.to_pylist():
                    row += 1
                    yield Record(row, values)
    except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "check the path, or fetch the file again"
        raise InputError(f"{path}:{row + 1} (row)", None, f"can't be read: {reason}", remedy) from error


def count_rows(path: Path) -> int:
    """Rows of the file, as its footer says; 1 where that can't be read (reading will tell why)."""
    try:
        open_regular(path).close()
        return int(require_arrow(path).read_metadata(path).num_rows)
    except (OSError, ValueError):
        return 1


def require_arrow(path: Path) -> Any:
    """Import pyarrow.parquet.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        remedy = "pip install 'grpoflow[parquet]'"
        raise InputError(path, None, f"Parquet needs the package pyarrow: {error}", remedy) from error
