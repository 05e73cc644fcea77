"""Checkpoints that survive kill -9: a complete one appears by a rename, or not at all.

A checkpoint is a directory step_000020 with a directory per set of tensors (weights, adam_m, adam_v, and
the reference if it moves), each holding rank_K/model.safetensors under the names of checkpoints, with
the strategy files that say how they are cut, and state.json. So any layout can read it, and so can
`merge` and `reshard`. All else follows from the seed and the state: the order of the data, the draws, the
learning rate.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.errors import InputError
from stages.files import read_json
from stages.layout import Role
from stages.weights.slicing import Strategy
from stages.weights.tensors import FILE_NAME, load, merge_ranks, slices_of, write_rank

Arrays = Mapping[str, NDArray[np.float32]]

ROLE_OF: dict[str, Role] = {
    "weights": "train", "adam_m": "train", "adam_v": "train", "reference": "reference",
}  # fmt: skip
"""Set of tensors -> the role whose layout they are cut by."""
POLL_S = 0.02


class Checkpoints:
    """The checkpoints of one run, in one directory that all workers see."""

    def __init__(
        self, directory: Path, rank: int, world: int, keep: int, strategies: Path | None,
        barrier: Callable[[], None],
    ) -> None:  # fmt: skip
        """Take over where and how many, and clear what a killed attempt left half done.

        Args:
            directory: made when the first checkpoint is written.
            rank: this worker.
            world: number of workers.
            keep: complete checkpoints that stay, beside the best one.
            strategies: {role}_strategy directories of this run's layout; None: one worker has whole tensors.
            barrier: returns when all workers have called it.
        """
        self.directory, self.rank, self.world, self.keep = directory, rank, world, keep
        self.strategies = strategies
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._abandoned = threading.Event()
        if rank == 0:
            for unfinished in directory.glob(".step_*"):
                shutil.rmtree(unfinished)
        barrier()

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        return sorted(int(path.parent.name[5:]) for path in self.directory.glob("step_*/state.json"))

    def path(self, step: int) -> Path:
        """Where the checkpoint of `step` lies."""
        return self.directory / f"step_{step:06d}"

    def save(self, step: int, sets: Mapping[str, Arrays], state: Mapping[str, Any], best: int | None) -> None:
        """Write a checkpoint behind training's back; returns once the arrays are copied.

        All workers call this, with their own arrays and the same state.

        Args:
            step: of the checkpoint.
            sets: name of ROLE_OF -> this worker's tensors by the names of checkpoints.
            state: for state.json.
            best: step of a checkpoint that stays however old; None: none.
        """
        self.wait()
        copies = {
            name: {key: np.array(array) for key, array in arrays.items()} for name, arrays in sets.items()
        }
        values = {**state, "step": step, "workers": self.world}
        self._writing = self._writer.submit(self._write, step, copies, values, best)

    def wait(self) -> None:
        """Return when the last checkpoint is complete; raises what its writing raised."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def abandon(self) -> None:
        """Wait for nobody any more: training has failed here.

        Another worker whose disk is full never completes the checkpoint under way, and Python waits for the
        thread that writes it before it ends this process.
        """
        self._abandoned.set()

    def _write(
        self, step: int, sets: Mapping[str, Arrays], state: Mapping[str, Any], best: int | None
    ) -> None:
        final = self.path(step)
        unfinished = final.with_name(f".{final.name}")
        for name, arrays in sets.items():
            file = unfinished / name / f"rank_{self.rank}" / FILE_NAME
            file.parent.mkdir(parents=True, exist_ok=True)
            write_rank(arrays, file, None)
            _sync(file)
        weights = unfinished / "weights" / f"rank_{self.rank}" / FILE_NAME
        (unfinished / f"written_{self.rank}").write_text(_digest(weights), encoding="ascii")
        if self.rank != 0:
            return
        # No collective here: the main thread is training, and has collectives of its own under way.
        while (
            len(marks := [mark for mark in unfinished.glob("written_*") if mark.stat().st_size]) < self.world
        ):
            if self._abandoned.wait(POLL_S):
                return
        if self.strategies is not None:
            for role in {ROLE_OF[name] for name in sets}:
                shutil.copytree(self.strategies / f"{role}_strategy", unfinished / f"{role}_strategy")
        # The file thus stands for the checkpoint's content where another run starts from it.
        digests = [(unfinished / f"written_{rank}").read_text("ascii") for rank in range(self.world)]
        for mark in marks:
            mark.unlink()
        text = json.dumps({**state, "weights_sha256": digests})
        (unfinished / "state.json").write_text(text, encoding="utf-8")
        for path in (unfinished / "state.json", *_directories(unfinished)):
            _sync(path)
        shutil.rmtree(final, ignore_errors=True)
        unfinished.rename(final)
        _sync(self.directory)
        for old in self.steps()[: -self.keep]:
            if old != best:
                shutil.rmtree(self.path(old))


def read_state(path: Path) -> dict[str, Any]:
    """state.json of a complete checkpoint.

    Raises:
        InputError: it is missing or damaged.
    """
    file = path / "state.json"
    try:
        state: dict[str, Any] = read_json(file)
    except (OSError, ValueError) as error:
        raise InputError(file, None, f"can't be read: {error}", "name another checkpoint") from error
    return state


def read_set(path: Path, name: str, strategy: Strategy | None, rank: int) -> dict[str, NDArray[Any]]:
    """One set of a checkpoint's tensors, cut for `rank` of `strategy` (None: whole), whoever wrote it.

    Raises:
        InputError: a file is missing or damaged.
    """
    written = path / f"{ROLE_OF[name]}_strategy"
    full = merge_ranks(path / name, written) if written.exists() else load(path / name / "rank_0")
    return full if strategy is None else slices_of(full, strategy, rank)


def _directories(root: Path) -> Iterator[Path]:
    """`root` and every directory below it."""
    yield root
    yield from (path for path in root.rglob("*") if path.is_dir())


def _digest(file: Path) -> str:
    """SHA-256 of a file's content."""
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file's content (a directory's entries) is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
