"""Checkpoints that survive kill -9: a complete one appears by a rename, or not at all.

A checkpoint is a directory step_000020 with rank_K.safetensors of every worker (weights, both moments)
and state.json. All else follows from the seed and the step: the order of the data, the draws, the
learning rate.
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

from stages.errors import InputError
from stages.weights.tensors import load, write_rank

Arrays = Mapping[str, NDArray[np.float32]]


class Checkpoints:
    """The checkpoints of one run, in one directory that all workers see."""

    def __init__(
        self, directory: Path, rank: int, world: int, keep: int, barrier: Callable[[], None]
    ) -> None:
        """Take over where and how many.

        Args:
            directory: made when the first checkpoint is written.
            rank: this worker.
            world: number of workers.
            keep: complete checkpoints that stay.
            barrier: returns when all workers have called it.
        """
        self.directory, self.rank, self.world, self.keep, self.barrier = directory, rank, world, keep, barrier

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint of so many workers, ascending."""
        found = []
        for path in self.directory.glob("step_*/state.json"):
            state = json.loads(path.read_text(encoding="utf-8"))
            if state["workers"] == self.world:
                found.append(int(state["step"]))
        return sorted(found)

    def save(self, step: int, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Write a checkpoint; all workers call this with their own arrays and the same state."""
        final = self._path(step)
        unfinished = final.with_name(f".{final.name}")
        if self.rank == 0:
            shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed attempt
            unfinished.mkdir(parents=True)
        self.barrier()
        file = unfinished / f"rank_{self.rank}.safetensors"
        write_rank(arrays, file, None)
        _sync(file)
        self.barrier()
        if self.rank == 0:
            text = json.dumps({**state, "step": step, "workers": self.world})
            (unfinished / "state.json").write_text(text, encoding="utf-8")
            _sync(unfinished / "state.json")
            _sync(unfinished)
            shutil.rmtree(final, ignore_errors=True)
            unfinished.rename(final)
            _sync(self.directory)
            for old in self.steps()[: -self.keep]:
                shutil.rmtree(self._path(old))

    def restore(self, step: int) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """This worker's arrays and the state of a complete checkpoint.

        Raises:
            InputError: a file is missing or damaged.
        """
        path = self._path(step)
        arrays = load(path / f"rank_{self.rank}.safetensors")
        try:
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                path / "state.json", None, f"can't be read: {error}", "remove this checkpoint"
            ) from error
        return arrays, state

    def _path(self, step: int) -> Path:
        return self.directory / f"step_{step:06d}"


def _sync(path: Path) -> None:
    """Wait until a file's content (a directory's entries) is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
