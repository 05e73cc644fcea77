"""Checkpoints that survive kill -9: a complete one appears by a rename, or not at all.

A checkpoint is a directory step_000020 with a directory per set of tensors (weights, adam_m, adam_v, and
the reference if it moves), each with rank_K/model.safetensors under the names of checkpoints, the strategy
files of their layout, and state.json, which lists all files with their digests. So any layout can read it,
and so can `merge` and `reshard`. A checkpoint with a damaged file is not used. All else follows from the seed
and the state: the order of the data, the draws, the learning rate.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.files import file_digest
from stages.base.layout import Role
from stages.grpo.checkpoint_files import STATE, flaw, read_state
from stages.weights.index import SINGLE_NAME
from stages.weights.strategy.files import Strategy
from stages.weights.tensors import load, merge_ranks, slices_of, write_rank

Arrays = Mapping[str, NDArray[np.float32]]

ROLE_OF: dict[str, Role] = {
    "weights": "train", "adam_m": "train", "adam_v": "train", "reference": "reference",
}  # fmt: skip
"""Set of tensors -> the role whose layout they are cut by."""


class Checkpoints:
    """The checkpoints of one run, in one directory that all workers see."""

    def __init__(
        self, directory: Path, rank: int, world: int, keep: int, strategies: Path | None,
        warn: Callable[[str], None], minimum: Callable[[int], int] = int,
    ) -> None:  # fmt: skip
        """Remove the incomplete checkpoints of a killed attempt.

        `keep`: complete checkpoints that stay, in addition to the best one. `strategies`: {role}_strategy
        directories of this run; None: one worker has complete tensors. `minimum` returns the smallest number
        of all workers, once all have called it; the default is for a single worker.
        """
        self.directory, self.rank, self.world, self.keep = directory, rank, world, keep
        self.strategies = strategies
        self._minimum, self._warn = minimum, warn
        if rank == 0:
            for unfinished in directory.glob(".step_*"):
                shutil.rmtree(unfinished)
        minimum(0)

    def steps(self) -> list[int]:
        """Return the steps with a complete checkpoint, ascending."""
        return sorted(int(path.parent.name[5:]) for path in self.directory.glob("step_*/state.json"))

    def path(self, step: int) -> Path:
        """Return the directory of the checkpoint of `step`."""
        return self.directory / f"step_{step:06d}"

    def newest(self, with_best: bool = False) -> int | None:
        """Return the step of the newest undamaged checkpoint, or None. All workers call this.

        Damaged ones are reported and moved aside, so that their steps can be written again. With `with_best`
        the best checkpoint, which the result will be, must be undamaged too: later ones depend on it.
        """
        newest = int(np.iinfo(np.int32).max)  # worker 0 has a smaller number
        if self.rank == 0:
            steps = self.steps()
            count = len(steps)
            while steps and not self._is_usable(steps[-1], with_best):
                path = self.path(steps.pop())
                aside = path.with_name(f"unusable_{path.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
            newest = steps[-1] if steps else -1
            if len(steps) < count:
                self._warn(f"going on from step {newest}" if steps else "beginning with the first step")
        newest = self._minimum(newest)
        return newest if newest >= 0 else None

    def is_complete(self, step: int) -> bool:
        """Return True if every file is as it was written. All workers call this; worker 0 checks."""
        return bool(self._minimum(int(self.rank != 0 or self._is_usable(step, with_best=False))))

    def _is_usable(self, step: int, with_best: bool) -> bool:
        """Return True if a checkpoint (with `with_best` its best one, too) is undamaged; report a flaw."""
        path = damaged = self.path(step)
        problem = flaw(path)
        if problem is None and with_best:
            best = (read_state(path).get("best") or {}).get("step")
            if best is not None and best != step:
                damaged = self.path(best)
                problem = flaw(damaged)
        if problem is not None:
            needs = "" if damaged == path else f"; {path.name} is unusable without it, the best so far"
            self._warn(f"checkpoint {damaged} is damaged: {problem}{needs}")
        return problem is None

    def save(self, step: int, sets: Mapping[str, Arrays], state: Mapping[str, Any], best: int | None) -> None:
        """Write a checkpoint. All workers call this, with their own arrays and the same state.

        `sets`: name of ROLE_OF -> this worker's tensors by the names of checkpoints; `best`: step of a
        checkpoint that stays however old.
        """
        final = self.path(step)
        unfinished = final.with_name(f".{final.name}")
        for name, arrays in sets.items():
            file = unfinished / name / f"rank_{self.rank}" / SINGLE_NAME
            write_rank(arrays, file, None)
            _sync(file)  # each worker its own: a rank's file may be gigabytes
        self._minimum(0)  # all have written
        if self.rank != 0:
            return
        if self.strategies is not None:
            for role in {ROLE_OF[name] for name in sets}:
                shutil.copytree(self.strategies / f"{role}_strategy", unfinished / f"{role}_strategy")
        files = {}
        for path in filter(Path.is_file, unfinished.rglob("*")):
            entry = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
            files[path.relative_to(unfinished).as_posix()] = entry
        # state.json, whose digests identify the checkpoint, is the last file.
        content = {**state, "step": step, "workers": self.world, "files": files}
        (unfinished / STATE).write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
        for path in (unfinished, *unfinished.rglob("*")):
            _sync(path)
        if final.exists():
            _remove(final)
        unfinished.rename(final)
        _sync(self.directory)
        for old in self.steps()[: -self.keep]:
            if old != best:
                _remove(self.path(old))


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint by a rename first, because a kill must not leave a part of it."""
    going = checkpoint.with_name(f".{checkpoint.name}-old")
    shutil.rmtree(going, ignore_errors=True)
    checkpoint.rename(going)
    shutil.rmtree(going)


def read_set(path: Path, name: str, strategy: Strategy | None, rank: int) -> dict[str, NDArray[Any]]:
    """Read a set of a checkpoint's tensors, cut for `rank` of `strategy` (None: complete tensors).

    Raises:
        InputError: a file is missing or damaged.
    """
    written = path / f"{ROLE_OF[name]}_strategy"
    full = merge_ranks(path / name, written) if written.exists() else load(path / name / "rank_0")
    return full if strategy is None else slices_of(full, strategy, rank)


def _sync(path: Path) -> None:
    """Wait until a file's content (a directory's entries) is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
