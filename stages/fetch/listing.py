"""What a hub lists: which entries are safe, and which of them are needed."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import InputError
from stages.fetch.config import MODEL_FILES, TOKENIZER_AND_TEMPLATE
from stages.weights.index import INDEX_NAME, SINGLE_NAME

SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Listed:
    """One file of a repository."""

    path: str
    """With slashes, relative to the repository."""
    size: int | None
    """Bytes; None: the listing does not say."""
    sha256: str | None
    """Lower case; None: the listing does not say."""


def check_paths(files: Iterable[Listed], origin: str) -> None:
    """Refuse a listing with any path that could leave its directory, needed or not.

    Raises:
        InputError: an absolute path, one with `..`, a backslash, a drive or an unprintable character.
    """
    for file in files:
        parts = file.path.split("/")
        if (
            UNPRINTABLE.search(file.path)
            or "\\" in file.path
            or re.match(r"[A-Za-z]:", file.path)
            or any(part in ("", ".", "..") for part in parts)
        ):
            rule = "leads out of the download directory; nothing was written"
            raise InputError(f"{origin}: {file.path!r}", None, rule, "do not trust this repository")


def check_inside(root: Path, files: Iterable[Listed]) -> None:
    """Refuse to write through a symbolic link that leads out of `root`.

    Raises:
        InputError: naming the file and where it would be written.
    """
    inside = root.resolve()
    for file in files:
        target = (root / file.path).parent.resolve()
        if target != inside and inside not in target.parents:
            rule = f"would be written to {target}, outside {inside}"
            raise InputError(root / file.path, None, rule, "remove the symbolic link")


def model_files(files: Sequence[Listed], origin: str, own_tokenizer: bool) -> list[Listed]:
    """Return weights, config and tokenizer: only safetensors, and a single file before an indexed set.

    Source: transformers 4.57 and 5.12, modeling_utils.py, _get_resolved_checkpoint_files.

    Raises:
        InputError: there are no safetensors weights.
    """
    names = {file.path for file in files}
    selected = set(MODEL_FILES) if own_tokenizer else set(MODEL_FILES) - set(TOKENIZER_AND_TEMPLATE)
    weights = {SINGLE_NAME} & names
    if not weights and INDEX_NAME in names:
        weights = {INDEX_NAME, *filter(SHARD.fullmatch, names)}
    if not weights:
        pickled = sorted(name for name in names if name.endswith(PICKLED))
        remedy = f"it must hold {SINGLE_NAME}, or {INDEX_NAME} and its shards; it holds {_some(names)}"
        if pickled:
            remedy = (
                f"{pickled[0]} is a pickle, which runs code when read: choose a repository of safetensors"
            )
        raise InputError(origin, None, "no file matches *.safetensors", remedy)
    return [file for file in files if file.path in selected | weights]


def matching(files: Sequence[Listed], pattern: str, origin: str) -> list[Listed]:
    """Return the files that match `pattern`, by path; `*` does not cross directories.

    Raises:
        InputError: none does.
    """
    matches = [file for file in files if _matches(file.path, pattern)]
    if not matches:
        names = {file.path for file in files}
        remedy = f"set dataset.files.*.name; it holds {_some(names)}"
        raise InputError(origin, None, f"no file matches {pattern}", remedy)
    return sorted(matches, key=lambda file: file.path)


def _matches(path: str, pattern: str) -> bool:
    parts, patterns = path.split("/"), pattern.split("/")
    pairs = zip(parts, patterns, strict=False)
    return len(parts) == len(patterns) and all(
        fnmatch.fnmatchcase(part, pattern_part) for part, pattern_part in pairs
    )


def _some(names: Iterable[str]) -> str:
    known = sorted(names)
    return ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "") or "nothing"
