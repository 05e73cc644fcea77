"""Reading of files that users and other programs provide, atomic writing, and lists of files with digests."""

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from stages.base.errors import InputError


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading bytes, without blocking on pipes.

    Raise OSError if it is missing, not readable, or a pipe, a device, a socket or a directory.
    """
    return open(path, "rb", opener=_open)


def _open(path: str, flags: int) -> int:
    """Return the descriptor of a regular file, which `open` closes."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor


def read_text(path: Path) -> str:
    """Read a UTF-8 file; raises OSError or UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8")


def read_bytes(path: Path) -> bytes:
    """Read a file; raises OSError like open_regular."""
    with open_regular(path) as file:
        return file.read()


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON value. Raise ValueError if it is not JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """Read the JSON value in a file; raises OSError, or ValueError like parse_json."""
    return parse_json(read_text(path))


def replace_file(file: Path, content: bytes) -> None:
    """Write a file such that another process reads the former content or the new one; raises OSError."""
    temporary = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def read_object(path: Path, remedy: str = "") -> dict[str, Any]:
    """Read the JSON object in a file. Raise InputError if the file is missing, not JSON, or not an object."""
    with understood(path, "a JSON object", remedy):
        values = read_json(path)
        if not isinstance(values, dict):
            raise TypeError(f"it is a {type(values).__name__}")
        return values


def read_optional_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file, like read_object; return an empty one if there is no file.

    Raises:
        InputError: the file is not JSON, or not an object.
    """
    return read_object(path) if path.is_file() else {}


@contextlib.contextmanager
def understood(path: Path, what: str, remedy: str = "") -> Iterator[None]:
    """Convert errors of code that reads a file and interprets its values into an InputError with its name."""
    try:
        yield
    except OSError as error:
        raise InputError(path, None, f"can't be read: {error.strerror or error}", remedy) from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        raise InputError(path, None, f"does not hold {what}: {reason}", remedy) from error


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content as hexadecimal digits."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def digest_entry(path: Path) -> dict[str, Any]:
    """Return the entry of a file in a list of files: {size (bytes), sha256}."""
    return {"size": path.stat().st_size, "sha256": file_digest(path)}


def is_digest_entry(name: str, entry: Any) -> bool:
    """Return True if an entry of a list of files has a size and a digest, and a name as in `stays_below`."""
    types = {"size": int, "sha256": str}
    is_complete = isinstance(entry, dict) and all(type(entry.get(key)) is types[key] for key in types)
    return is_complete and stays_below(name)


def difference(path: Path, entry: Mapping[str, Any], deep: bool = True) -> str | None:
    """Return how a file differs from its entry, or None; `deep` compares digests. Raise OSError."""
    if (size := path.stat().st_size) != entry["size"]:
        return f"has {size} bytes, written with {entry['size']}"
    if deep and (digest := file_digest(path)) != entry["sha256"]:
        return f"has sha256 {digest[:12]}…, written with {entry['sha256'][:12]}…"
    return None


def stays_below(name: str) -> bool:
    """Return True if a path with slashes, as in a list of files, leads to a file below their directory.

    Absolute paths, `..`, and other spellings of a path (`a//b`, `./a`) are refused. Links are not followed.
    """
    return "\0" not in name and {"", ".", ".."}.isdisjoint(name.split("/"))


def shown_bytes(count: int) -> str:
    """Format a number of bytes with a fitting unit: 512 B, 3.2 MiB."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"
