"""Reading files that others wrote: regular ones only, and what is wrong with them as OSError or ValueError.

A pipe that nobody writes to would otherwise be waited for without end, and JSON nested without end gives an
error of a kind of its own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from stages.errors import InputError


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: it is missing, may not be read, or is a directory, pipe, socket or device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    raise OSError(errno.EINVAL, "Is not a regular file", str(path))


def read_bytes(path: Path) -> bytes:
    """A file's content.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """A file's content.

    Raises:
        OSError: as `open_regular`.
        ValueError: it is not UTF-8.
    """
    return read_bytes(path).decode("utf-8")


def parse_json(text: str | bytes) -> Any:
    """A JSON value.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """The JSON value that a file holds.

    Raises:
        OSError: as `open_regular`.
        ValueError: it is not UTF-8, not JSON, or nested too deeply.
    """
    return parse_json(read_text(path))


@contextlib.contextmanager
def understood(path: Path, what: str, remedy: str = "") -> Iterator[None]:
    """Around code that takes a file's values apart: what they lack or are instead is told by the file's name.

    Args:
        path: the file.
        what: it should be, for example "a list of added tokens".
        remedy: what to do about it.

    Raises:
        InputError: a key is missing, or a value is of another kind or beyond bounds.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(path, None, f"does not hold {what}: {error!r:.300}", remedy) from error
