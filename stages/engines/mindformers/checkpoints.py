"""mindrlhf's and mindformers' checkpoints: which are whole, and meta.json made true before a run continues.

Layout: PART/rank_N/PREFIX_rank_N-EPOCH_STEP.safetensors and meta.json; mindrlhf's parts are train, optimizer
and ref, mindformers' checkpoint (core/callback/callback.py, CheckpointMonitor). mindrlhf writes
meta.json without truncating it (utils.py, record_last_ckpt_to_json): 0_1865 followed by 1_0 leaves bytes
behind that make it no JSON. File names tell what it should say.

A copy of this file stands beside the start scripts, which ask it at every start whether the run goes on
(`python checkpoints.py DIRECTORY WORKERS`). So it needs Python 3.9 and nothing else, not even its own room;
and the scripts of several nodes may run it at once.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PREFIXES = {"train": "policy_model", "optimizer": "optimizer", "ref": "ref", "checkpoint": "sft"}
PartGroup = tuple[str, ...]
"""Parts that must be of one moment."""
MINDRLHF: tuple[PartGroup, ...] = (("train", "optimizer"), ("ref",))
"""The reference never changes, so its own newest moment serves."""
RESUMED = "resumed.json"
"""File in the checkpoints' directory with the [epoch, step] that the latest start resumed from, or null."""
_NAME = re.compile(r"(?P<prefix>\w+)_rank_(?P<rank>\d+)-(?P<epoch>\d+)_(?P<step>\d+)\.safetensors")


@dataclass(frozen=True, order=True)
class Moment:
    """Step at which a checkpoint was written, read from its file name."""

    epoch: int
    """Whole passes over the data before it."""
    step: int
    """Steps of the pass under way."""

    def __str__(self) -> str:
        return f"{self.epoch}_{self.step}"


def moments(root: Path, part: str, workers: int) -> list[Moment]:
    """Moments of which every rank has a whole file, oldest first."""
    common: set[Moment] | None = None
    for rank in range(workers):
        steps = {
            Moment(int(match["epoch"]), int(match["step"]))
            for path in (root / part / f"rank_{rank}").glob("*.safetensors")
            if (match := _NAME.fullmatch(path.name))
            and match["prefix"] == PREFIXES[part]
            and _is_complete(path)
        }
        common = steps if common is None else common & steps
    return sorted(common or ())


def file(root: Path, part: str, rank: int, moment: Moment) -> Path:
    """One rank's file."""
    return root / part / f"rank_{rank}" / f"{PREFIXES[part]}_rank_{rank}-{moment}.safetensors"


def prepare_resume(root: Path, workers: int, parts: Sequence[PartGroup] = MINDRLHF) -> Moment | None:
    """Find the newest moment that a run can continue from, and make every meta.json point to it.

    Files of later moments, which a kill left unfinished on some rank, are removed: mindformers would pick
    them by time stamp.

    Returns:
        The moment, or None when the run must begin anew.
    """
    moments = newest(root, workers, parts)
    if moments is None:
        return None
    for part_group, moment in zip(parts, moments):  # noqa: B905 (strict= came with Python 3.10)
        for part, rank in itertools.product(part_group, range(workers)):
            _remove_later(root / part / f"rank_{rank}", moment)
            _write_meta(file(root, part, rank, moment), moment)
    return moments[0]


def newest(root: Path, workers: int, parts: Sequence[PartGroup] = MINDRLHF) -> list[Moment] | None:
    """Return the newest moment of each group of parts; None if a group has no checkpoint."""
    latest = []
    for part_group in parts:
        common = set.intersection(*(set(moments(root, part, workers)) for part in part_group))
        if not common:
            return None
        latest.append(max(common))
    return latest


def _write_meta(path: Path, moment: Moment) -> None:
    meta = {"last_epoch": moment.epoch, "last_step": moment.step, "last_ckpt_file": path.name}
    _write(path.with_name("meta.json"), meta)


def _write(path: Path, content: object) -> None:
    temporary = path.with_name(f"{path.name}.{os.uname().nodename}-{os.getpid()}")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(path)


def _remove_later(directory: Path, moment: Moment) -> None:
    for path in directory.glob("*.safetensors"):
        match = _NAME.fullmatch(path.name)
        if match is None or Moment(int(match["epoch"]), int(match["step"])) > moment:
            path.unlink(missing_ok=True)


def _is_complete(path: Path) -> bool:
    """Return True if a file has all bytes that its header announces; a kill truncates files."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            size = os.fstat(stream.fileno()).st_size
            header = json.loads(stream.read(length)) if length <= size else {}
            entries = [entry for name, entry in header.items() if name != "__metadata__"]
            return 8 + int(length) + max(int(entry["data_offsets"][1]) for entry in entries) == size
    except (OSError, struct.error, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False


def main(arguments: list[str]) -> int:
    """Exit code 0 when the run goes on, with its checkpoints ready; 3 when it begins anew."""
    root = Path(arguments[0])
    moment = prepare_resume(root, int(arguments[1]))
    root.mkdir(parents=True, exist_ok=True)
    _write(root / RESUMED, None if moment is None else [moment.epoch, moment.step])
    print("begins" if moment is None else f"resumes from checkpoint {moment}", flush=True)
    return 3 if moment is None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
