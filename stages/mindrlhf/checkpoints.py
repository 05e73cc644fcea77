"""mindrlhf's and mindformers' checkpoints: which are whole, and meta.json made true before a run continues.

Layout: PART/rank_N/PREFIX_rank_N-EPOCH_STEP.safetensors and meta.json; mindrlhf's parts are train, optimizer
and ref, mindformers' checkpoint (core/callback/callback.py, CheckpointMonitor). mindrlhf writes
meta.json without truncating it (utils.py, record_last_ckpt_to_json): 0_1865 followed by 1_0 leaves bytes
behind that make it no JSON. File names tell what it should say.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.errors import InputError
from stages.weights.header import read_header

PREFIXES = {"train": "policy_model", "optimizer": "optimizer", "ref": "ref", "checkpoint": "sft"}
Together = tuple[str, ...]
"""Parts that must be of one moment."""
MINDRLHF: tuple[Together, ...] = (("train", "optimizer"), ("ref",))
"""The reference never changes, so its own newest moment serves."""
_NAME = re.compile(r"(?P<prefix>\w+)_rank_(?P<rank>\d+)-(?P<epoch>\d+)_(?P<step>\d+)\.safetensors")


@dataclass(frozen=True, order=True)
class Moment:
    """When a checkpoint was made, as its file name says."""

    epoch: int
    """Whole passes over the data before it."""
    step: int
    """Steps of the pass under way."""

    def __str__(self) -> str:
        return f"{self.epoch}_{self.step}"


def moments(root: Path, part: str, workers: int) -> list[Moment]:
    """Moments of which every rank has a whole file, oldest first.

    Args:
        root: the directory that holds the parts.
        part: one of PREFIXES.
        workers: ranks that must have it.
    """
    found: set[Moment] | None = None
    for rank in range(workers):
        own = {
            Moment(int(match["epoch"]), int(match["step"]))
            for path in (root / part / f"rank_{rank}").glob("*.safetensors")
            if (match := _NAME.fullmatch(path.name)) and match["prefix"] == PREFIXES[part] and _is_whole(path)
        }
        found = own if found is None else found & own
    return sorted(found or ())


def file(root: Path, part: str, rank: int, moment: Moment) -> Path:
    """One rank's file."""
    return root / part / f"rank_{rank}" / f"{PREFIXES[part]}_rank_{rank}-{moment}.safetensors"


def prepare_resume(root: Path, workers: int, parts: Sequence[Together] = MINDRLHF) -> Moment | None:
    """Find the newest moment that a run can continue from, and make every meta.json point to it.

    Files of later moments, which a kill left unfinished on some rank, are removed: mindformers would pick
    them by time stamp.

    Args:
        root: the directory that holds the parts.
        workers: ranks.
        parts: what a run reads when it continues; the first tells the moment.

    Returns:
        The moment, or None when the run must begin anew.
    """
    found = [_newest(root, together, workers) for together in parts]
    if None in found:
        return None
    for together, moment in zip(parts, found, strict=True):
        assert moment is not None
        for part, rank in itertools.product(together, range(workers)):
            _remove_later(root / part / f"rank_{rank}", moment)
            _write_meta(file(root, part, rank, moment), moment)
    return found[0]


def _newest(root: Path, together: Together, workers: int) -> Moment | None:
    common = set.intersection(*(set(moments(root, part, workers)) for part in together))
    return max(common, default=None)


def _write_meta(path: Path, moment: Moment) -> None:
    meta = {"last_epoch": moment.epoch, "last_step": moment.step, "last_ckpt_file": path.name}
    temporary = path.with_name("meta.json.new")
    temporary.write_text(json.dumps(meta), encoding="utf-8")
    temporary.replace(path.with_name("meta.json"))


def _remove_later(directory: Path, moment: Moment) -> None:
    for path in directory.glob("*.safetensors"):
        match = _NAME.fullmatch(path.name)
        if match is None or Moment(int(match["epoch"]), int(match["step"])) > moment:
            path.unlink()


def _is_whole(path: Path) -> bool:
    try:
        read_header(path)  # compares the header's offsets with the file's size
    except (InputError, OSError):
        return False
    return True
