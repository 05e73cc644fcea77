"""Checkpoints of mindrlhf and mindformers: which are complete, and a valid meta.json before a run resumes.

Layout: PART/rank_N/PREFIX_rank_N-EPOCH_STEP.safetensors and meta.json; mindrlhf's parts are train, optimizer
and ref, mindformers' part is checkpoint (core/callback/callback.py, CheckpointMonitor). mindrlhf overwrites
meta.json without truncating it (utils.py, record_last_ckpt_to_json): after 0_1865 and 1_0 it is invalid JSON.
It is restored from file names.

A copy of this file next to the start scripts decides at every start whether the run resumes
(`python checkpoints.py DIRECTORY WORKERS`). It needs Python 3.9 and nothing else, and the
scripts of several nodes may run it at once.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PREFIXES = {"train": "policy_model", "optimizer": "optimizer", "ref": "ref", "checkpoint": "sft"}
MINDRLHF = ("train", "optimizer", "ref")
"""Parts of mindrlhf's checkpoints; it saves all of them every train.checkpoint_every steps."""
RESUMED = "resumed.json"
"""File in the checkpoints' directory with the [epoch, step] from which the latest start resumed, or null."""
_NAME = re.compile(r"(?P<prefix>\w+)_rank_(?P<rank>\d+)-(?P<epoch>\d+)_(?P<step>\d+)\.safetensors")


class Moment(NamedTuple):
    """Epoch and step at which a checkpoint was written, read from its file name."""

    epoch: int
    """Completed passes over the data."""
    step: int
    """Steps of the current pass."""

    def __str__(self) -> str:
        return f"{self.epoch}_{self.step}"


def checkpoints_to_keep(keep: int) -> int:
    """Return how many checkpoints a program must keep so that a kill during a save leaves a complete one.

    mindrlhf removes the oldest file of a part when it has written the part's new one, before it writes the
    other parts; mindformers removes it before it writes (CheckpointMonitor._save_ckpt).
    """
    return max(2, keep)


def _moment(file: Path, part: str) -> Moment | None:
    match = _NAME.fullmatch(file.name)
    if match is None or match["prefix"] != PREFIXES[part]:
        return None
    return Moment(int(match["epoch"]), int(match["step"]))


def moments(root: Path, part: str, workers: int) -> list[Moment]:
    """Return the moments of which every rank has a complete file, oldest first."""
    ranks = []
    for rank in range(workers):
        files = filter(_is_complete, (root / part / f"rank_{rank}").glob("*.safetensors"))
        ranks.append({moment for moment in (_moment(file, part) for file in files) if moment is not None})
    return sorted(set.intersection(*ranks))


def file(root: Path, part: str, rank: int, moment: Moment) -> Path:
    """Return the path of one rank's file."""
    return root / part / f"rank_{rank}" / f"{PREFIXES[part]}_rank_{rank}-{moment}.safetensors"


def prepare_resume(root: Path, workers: int, parts: Sequence[str] = MINDRLHF) -> Moment | None:
    """Return the newest moment from which a run can resume, to which every meta.json points now, or None.

    Files of later moments, incomplete on some rank, are removed: mindformers would choose by time stamp.
    """
    moment = newest(root, workers, parts)
    if moment is None:
        return None
    for part, rank in itertools.product(parts, range(workers)):
        target = file(root, part, rank, moment)
        for path in target.parent.glob("*.safetensors"):
            found = _moment(path, part)
            if found is None or found > moment:
                path.unlink(missing_ok=True)
        meta = {"last_epoch": moment.epoch, "last_step": moment.step, "last_ckpt_file": target.name}
        _write(target.with_name("meta.json"), meta)
    return moment


def newest(root: Path, workers: int, parts: Sequence[str] = MINDRLHF) -> Moment | None:
    """Return the newest moment of which all parts are complete."""
    return max(set.intersection(*(set(moments(root, part, workers)) for part in parts)), default=None)


def _write(path: Path, content: object) -> None:
    temporary = path.with_name(f"{path.name}.{os.uname().nodename}-{os.getpid()}")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(path)


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
    """Prepare the checkpoints; return 0 if the run resumes, 3 if it begins."""
    root = Path(arguments[0])
    moment = prepare_resume(root, int(arguments[1]))
    root.mkdir(parents=True, exist_ok=True)
    _write(root / RESUMED, moment)
    print("begins" if moment is None else f"resumes from checkpoint {moment}", flush=True)
    return 3 if moment is None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
