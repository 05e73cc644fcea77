"""Writable stand-ins for what the programs read: some write beside it, and no artifact may change.

PromptDataset leaves an index beside the data (mindspeed_rl/datasets/utils.py, _build_index_mappings), and
the converter puts its result below the original's directory.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from stages.errors import InputError
from stages.mindspeed_rl.checkpoints import TRACKER


def link_files(files: Iterable[Path], target: Path) -> None:
    """Make `target` anew with a link to each file.

    Raises:
        InputError: a file is missing.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in files:
        if not file.is_file():
            raise InputError(file, None, "is missing", "run the stage that wrote it again")
        (target / file.name).symlink_to(file.resolve())


def link_mcore(source: Path, target: Path) -> None:
    """Make `target` anew: links to the weights of an mcore directory, and its tracker as a copy."""
    shutil.rmtree(target, ignore_errors=True)
    for file in sorted(source.rglob("*.pt")):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file.resolve())
    shutil.copyfile(source / TRACKER, target / TRACKER)
