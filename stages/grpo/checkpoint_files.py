"""Whether a checkpoint is what was written: read by the trainer, the plan and verify; imports no NumPy.

state.json names every other file of its checkpoint with size and SHA-256. Those of earlier versions name the
weights alone, by `weights_sha256`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import open_regular, read_json

STATE = "state.json"
WEIGHTS = "weights/rank_{rank}/model.safetensors"


@dataclass(frozen=True)
class Listed:
    """Entry of a file in state.json."""

    bytes: int | None
    """None: an earlier version did not say."""
    sha256: str


def read_state(path: Path) -> dict[str, Any]:
    """state.json of a complete checkpoint.

    Raises:
        InputError: it is missing or damaged.
    """
    file = path / STATE
    try:
        state = read_json(file)
    except (OSError, ValueError) as error:
        raise InputError(file, None, f"can't be read: {error}", "name another checkpoint") from error
    if not isinstance(state, dict):
        raise InputError(file, None, "must hold an object", "name another checkpoint")
    return state


def listed(path: Path) -> dict[str, Listed]:
    """Return the files that a checkpoint's state.json lists, by relative path.

    Raises:
        InputError: state.json is missing or damaged, or names none.
    """
    state = read_state(path)
    try:
        if "files" in state:
            named = {name: Listed(entry["bytes"], entry["sha256"]) for name, entry in state["files"].items()}
        else:
            digests = enumerate(state["weights_sha256"])
            named = {WEIGHTS.format(rank=rank): Listed(None, digest) for rank, digest in digests}
        if not named or any(_leads_out(name) for name in named):
            raise ValueError(f"files: {sorted(named)}")
        files_in_state = named.values()
        if not all(
            isinstance(entry.sha256, str) and type(entry.bytes) in (int, type(None))
            for entry in files_in_state
        ):
            raise ValueError("a size or digest is none")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        remedy = "name another checkpoint"
        raise InputError(path / STATE, None, f"does not tell its files ({error!r})", remedy) from error
    return named


def _leads_out(name: str) -> bool:
    return Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name


def identity(path: Path) -> tuple[Path, ...]:
    """Return the files whose content distinguishes a checkpoint from every other one.

    state.json alone, which vouches for the rest; besides, what that of an earlier version does not name:
    moments and reference.
    """
    try:
        named = listed(path)
    except InputError:  # told by who reads it
        named = {}
    tensors = sorted(path.glob("*/rank_*/model.safetensors"))
    return (path / STATE, *(file for file in tensors if file.relative_to(path).as_posix() not in named))


def flaw(path: Path, deep: bool = True, part: int = 0, parts: int = 1) -> str | None:
    """Return what is wrong with a checkpoint; None if it is intact.

    Args:
        path: its directory.
        deep: compare digests; otherwise sizes alone.
        part: which share of the files to look at, so that several workers look at all of them together.
        parts: how many shares there are.
    """
    try:
        for name, file in sorted(listed(path).items())[part::parts]:
            size = (path / name).stat().st_size
            if file.bytes is not None and size != file.bytes:
                return f"{name} has {size} bytes, written with {file.bytes}"
            if deep and (actual := digest(path / name)) != file.sha256:
                return f"{name} has sha256 {actual[:12]}…, written with {file.sha256[:12]}…"
    except FileNotFoundError as error:
        return f"{Path(error.filename).relative_to(path)} is missing"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except InputError as error:
        return str(error.problem.rule)
    return None


def digest(file: Path) -> str:
    """SHA-256 of a file's content."""
    sha256 = hashlib.sha256()
    with open_regular(file) as stream:
        while block := stream.read(1 << 20):
            sha256.update(block)
    return sha256.hexdigest()
