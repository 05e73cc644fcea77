"""Files that a hub lists: checks of their paths, and the choice of those that are needed."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import InputError
from stages.fetch.config import MODEL_FILES, TOKENIZER_AND_TEMPLATE
from stages.tokenizer import missing_files
from stages.weights.index import INDEX_NAME, SINGLE_NAME

CONFIG = "config.json"
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:")
SHOWN = 8


@dataclass(frozen=True)
class Listed:
    """One file of a repository."""

    path: str
    """With slashes, relative to the repository."""
    size: int | None
    """Bytes; None: unknown."""
    sha256: str | None
    """Lower case; None: unknown."""


def check_paths(files: Iterable[Listed], origin: str) -> None:
    """Refuse absolute paths and those with `..`, a backslash, a drive or an unprintable character."""
    for file in files:
        if UNSAFE.search(file.path) or not {"", ".", ".."}.isdisjoint(file.path.split("/")):
            rule = "leads out of the download directory; nothing was written"
            raise InputError(f"{origin}: {file.path!r}", None, rule, "do not trust this repository")


def check_inside(root: Path, files: Iterable[Listed]) -> None:
    """Refuse to write through a symbolic link that leads out of `root`."""
    inside = root.resolve()
    for file in files:
        target = (root / file.path).parent.resolve()
        if not target.is_relative_to(inside):
            rule = f"would be written to {target}, outside {inside}"
            raise InputError(root / file.path, None, rule, "remove the symbolic link")


def model_files(files: Sequence[Listed], origin: str, with_tokenizer: bool) -> list[Listed]:
    """Return weights, config and tokenizer: only safetensors, and a single file before an indexed set.

    Raise InputError if there are no safetensors weights, or no tokenizer that can be read although one is
    requested.
    Source: transformers 4.57 and 5.12, modeling_utils.py, _get_resolved_checkpoint_files.
    """
    names = {file.path for file in files}
    selected = set(MODEL_FILES) if with_tokenizer else set(MODEL_FILES) - set(TOKENIZER_AND_TEMPLATE)
    if SINGLE_NAME in names:
        selected.add(SINGLE_NAME)
    elif INDEX_NAME in names:
        selected |= {INDEX_NAME, *filter(SHARD.fullmatch, names)}
    else:
        remedy = f"choose a repository with one of them, pickles are not read; it holds {_first_names(names)}"
        raise InputError(origin, None, f"holds neither {SINGLE_NAME} nor {INDEX_NAME}", remedy)
    if with_tokenizer and (missing := missing_files(names)):
        raise InputError(origin, None, *missing)
    return [file for file in files if file.path in selected]


def matching(
    files: Sequence[Listed], origin: str, pattern: str, remedy: str = "set dataset.files.*.name"
) -> list[Listed]:
    """Return the files (at least one) that match `pattern`, by path; `*` does not cross directories.

    Raises:
        InputError: no file matches.
    """
    depth, parts = pattern.count("/"), pattern.split("/")
    same_depth = [file for file in files if file.path.count("/") == depth]
    matches = [file for file in same_depth if all(map(fnmatch.fnmatchcase, file.path.split("/"), parts))]
    if not matches:
        held = _first_names(file.path for file in files)
        raise InputError(origin, None, f"no file matches {pattern}", f"{remedy}; it holds {held}")
    return sorted(matches, key=lambda file: file.path)


def _first_names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{', '.join(listed[:SHOWN]) or 'nothing'}{more}"
