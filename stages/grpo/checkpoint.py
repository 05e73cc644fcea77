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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.files import file_digest
from stages.base.layout import Role
from stages.grpo.checkpoint_files import STATE, flaw, read_state
from stages.weights.strategy.files import Strategy
from stages.weights.tensors import FILE_NAME, load, merge_ranks, slices_of, write_rank

Arrays = Mapping[str, NDArray[np.float32]]

ROLE_OF: dict[str, Role] = {
    "weights": "train", "adam_m": "train", "adam_v": "train", "reference": "reference",
}  # fmt: skip
"""Set of tensors -> the role whose layout they are cut by."""


class Checkpoints:
    """The checkpoints of one run, in one directory that all workers see."""

    def __init__(
        self, directory: Path, rank: int, world: int, keep: int, strategies: Path | None,
        barrier: Callable[[], None], warn: Callable[[str], None], least: Callable[[int], int] = int,
    ) -> None:  # fmt: skip
        """Remove the incomplete checkpoints of a killed attempt.

        Args:
            directory: made when the first checkpoint is written.
            rank: this worker.
            world: number of workers.
            keep: complete checkpoints that stay, in addition to the best one.
            strategies: {role}_strategy directories of this run; None: one worker has complete tensors.
            barrier: returns when all workers have called it.
            least: the smallest of the numbers that all workers give.
            warn: reports a warning to the user.
        """
        self.directory, self.rank, self.world, self.keep = directory, rank, world, keep
        self.strategies = strategies
        self._barrier, self._least, self._warn = barrier, least, warn
        if rank == 0:
            for unfinished in directory.glob(".step_*"):
                shutil.rmtree(unfinished)
        barrier()

    def steps(self) -> list[int]:
        """Return the steps with a complete checkpoint, ascending."""
        return sorted(int(path.parent.name[5:]) for path in self.directory.glob("step_*/state.json"))

    def path(self, step: int) -> Path:
        """Return the directory of the checkpoint of `step`."""
        return self.directory / f"step_{step:06d}"

    def newest(self, with_best: bool = False) -> int | None:
        """Return the step of the newest undamaged checkpoint, or None. All workers call this.

        Damaged ones are reported and moved aside, so that their steps can be written again.

        Args:
            with_best: the best checkpoint, which the result will be, must be undamaged too.
        """
        while True:
            steps = self.steps()
            step = self._least(steps[-1] if steps else -1)
            if step < 0:
                return None
            if self.is_complete(step, with_best):
                return step
            if self.rank == 0:
                aside = self.path(step).with_name(f"damaged_{self.path(step).name}")
                shutil.rmtree(aside, ignore_errors=True)
                self.path(step).rename(aside)
                earlier = self.steps()
                self._warn(f"going on from step {earlier[-1]}" if earlier else "beginning anew")
            self._barrier()

    def is_complete(self, step: int, with_best: bool = False) -> bool:
        """Return True if every file is as it was written; worker 0 checks them and reports a flaw."""
        problem = None
        if self.rank == 0:
            path = self.path(step)
            problem = flaw(path)
            if problem is None and with_best:
                best = (read_state(path).get("best") or {}).get("step")
                if best is not None and best != step:
                    path = self.path(best)
                    problem = flaw(path)
            if problem is not None:
                self._warn(f"checkpoint {path} is damaged: {problem}")
        return bool(self._least(int(problem is None)))

    def save(self, step: int, sets: Mapping[str, Arrays], state: Mapping[str, Any], best: int | None) -> None:
        """Write a checkpoint. All workers call this, with their own arrays and the same state.

        Args:
            step: of the checkpoint.
            sets: name of ROLE_OF -> this worker's tensors by the names of checkpoints.
            state: for state.json.
            best: step of a checkpoint that stays however old; None: none.
        """
        final = self.path(step)
        unfinished = final.with_name(f".{final.name}")
        self._write_share(unfinished, sets)
        self._barrier()
        if self.rank != 0:
            return
        files: dict[str, Any] = {}
        for share in sorted(unfinished.glob("share_*")):
            files |= json.loads(share.read_text(encoding="utf-8"))
            share.unlink()
        if self.strategies is not None:
            for role in {ROLE_OF[name] for name in sets}:
                copied = unfinished / f"{role}_strategy"
                shutil.copytree(self.strategies / copied.name, copied)
                files |= {file.relative_to(unfinished).as_posix(): _listed(file) for file in copied.iterdir()}
        self._commit(unfinished, final, {**state, "step": step, "workers": self.world, "files": files})
        for old in self.steps()[: -self.keep]:
            if old != best:
                _remove(self.path(old))

    def _write_share(self, unfinished: Path, sets: Mapping[str, Arrays]) -> None:
        """Write this worker's tensors, then a file that lists them."""
        files = {}
        for name, arrays in sets.items():
            file = unfinished / name / f"rank_{self.rank}" / FILE_NAME
            file.parent.mkdir(parents=True, exist_ok=True)
            write_rank(arrays, file, None)
            _sync(file)
            files[file.relative_to(unfinished).as_posix()] = _listed(file)
        (unfinished / f"share_{self.rank}").write_text(json.dumps(files), encoding="utf-8")

    def _commit(self, unfinished: Path, final: Path, state: Mapping[str, Any]) -> None:
        """Write state.json, whose digests identify the checkpoint, and rename the directory."""
        (unfinished / STATE).write_text(json.dumps(state, sort_keys=True), encoding="utf-8")
        for path in (unfinished / STATE, *_directories(unfinished)):
            _sync(path)
        if final.exists():
            _remove(final)
        unfinished.rename(final)
        _sync(self.directory)


def _listed(file: Path) -> dict[str, int | str]:
    """Return a file's entry for state.json."""
    return {"bytes": file.stat().st_size, "sha256": file_digest(file)}


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


def _directories(root: Path) -> Iterator[Path]:
    """Yield `root` and every directory below it."""
    yield root
    yield from (path for path in root.rglob("*") if path.is_dir())


def _sync(path: Path) -> None:
    """Wait until a file's content (a directory's entries) is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
