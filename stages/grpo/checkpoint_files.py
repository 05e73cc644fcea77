"""Check of a checkpoint's files, for the trainer, the plan and verify; imports no NumPy.

state.json lists every other file of its checkpoint with size and SHA-256.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import file_digest, read_object

STATE = "state.json"
"""File that distinguishes a checkpoint from every other: it has the digests of all others."""
CHECKPOINTS, FINAL = "checkpoints", "final"
"""Directories in a stage's work directory: checkpoints that it resumes from, and that of its last step, from
which longer runs can continue."""
REMEDY = "name another checkpoint"


@dataclass(frozen=True)
class Listed:
    """Entry of a file in state.json."""

    bytes: int
    sha256: str


def read_state(path: Path) -> dict[str, Any]:
    """Return the content of a complete checkpoint's state.json.

    Raises:
        InputError: it is missing or damaged.
    """
    return read_object(path / STATE, REMEDY)


def listed(path: Path) -> dict[str, Listed]:
    """Return the files that a checkpoint's state.json lists, by relative path.

    Raises:
        InputError: state.json is missing or damaged, or lists none.
    """
    files = read_state(path).get("files")
    if not isinstance(files, dict) or not files or not all(map(_is_entry, files, files.values())):
        raise InputError(path / STATE, None, "does not list the checkpoint's files", REMEDY)
    return {name: Listed(entry["bytes"], entry["sha256"]) for name, entry in files.items()}


def _is_entry(name: str, entry: Any) -> bool:
    """Return True if an entry of state.json has a size and a digest, and its file is in the checkpoint."""
    is_inside = not Path(name).is_absolute() and ".." not in Path(name).parts and "\0" not in name
    types = {"bytes": int, "sha256": str}
    return is_inside and isinstance(entry, dict) and all(type(entry.get(key)) is types[key] for key in types)


def flaw(path: Path, deep: bool = True) -> str | None:
    """Return what is wrong with a checkpoint's files; None if they are intact. Compare digests if `deep`."""
    try:
        for name, file in sorted(listed(path).items()):
            size = (path / name).stat().st_size
            if size != file.bytes:
                return f"{name} has {size} bytes, written with {file.bytes}"
            if deep and (actual := file_digest(path / name)) != file.sha256:
                return f"{name} has sha256 {actual[:12]}…, written with {file.sha256[:12]}…"
    except FileNotFoundError as error:
        return f"{Path(error.filename).relative_to(path)} is missing"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except InputError as error:
        return str(error.problem.rule)
    return None
