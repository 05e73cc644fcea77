"""Checkpoints that survive kill -9: a complete one appears by a rename, or not at all.

A checkpoint is a directory step_000020 with a directory per set of tensors (weights, adam_m, adam_v, and
the reference if it moves), each with rank_K/model.safetensors under the names of checkpoints, the strategy
files of their layout, and state.json, which lists all other files with size and SHA-256. So any layout can
read it, and so can `merge` and `reshard`. A checkpoint with a damaged file is not used. All else follows from
the seed and the state: the order of the data, the draws, the learning rate.

The plan and verify read state.json without NumPy and MindSpore, so functions that need them import them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.base.errors import ConfigError, InputError
from stages.base.files import difference, digest_entry, is_digest_entry, read_object
from stages.base.layout import Role
from stages.grpo.rules import check_resumed
from stages.weights.index import SINGLE_NAME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from stages.grpo.learner import Learner
    from stages.grpo.trainer import Trainer
    from stages.models.config import ModelConfig
    from stages.weights.strategy.files import Strategy

    Arrays = Mapping[str, NDArray[Any]]

STATE = "state.json"
"""File that distinguishes a checkpoint from every other: it has the digests of all others."""
CHECKPOINTS, FINAL = "checkpoints", "final"
"""Directories in a stage\'s work directory: checkpoints that it resumes from, and that of its last step, from
which longer runs can continue."""
REMEDY = "name another checkpoint"
ROLE_OF: dict[str, Role] = {
    "weights": "train", "adam_m": "train", "adam_v": "train", "reference": "reference",
}  # fmt: skip
"""Set of tensors -> the role whose layout they are cut by."""
LAST_STEP = 2**31 - 1


def read_state(path: Path) -> dict[str, Any]:
    """Return the content of a complete checkpoint's state.json.

    Raises:
        InputError: it is missing or damaged.
    """
    return read_object(path / STATE, REMEDY)


def listed(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries (files.digest_entry) that a checkpoint's state.json lists, by relative path.

    Raises:
        InputError: state.json is missing or damaged, or lists none.
    """
    files = read_state(path).get("files")
    if not isinstance(files, dict) or not files or not all(map(is_digest_entry, files, files.values())):
        raise InputError(path / STATE, None, "does not list the checkpoint's files", REMEDY)
    return files


def flaw(path: Path, deep: bool = True) -> str | None:
    """Return what is wrong with a checkpoint's files; None if they are intact. Compare digests if `deep`."""
    try:
        for name, entry in sorted(listed(path).items()):
            if problem := difference(path / name, entry, deep):
                return f"{name} {problem}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).relative_to(path)} is missing"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except InputError as error:
        return str(error.problem.rule)
    return None


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
        newest = LAST_STEP  # worker 0 has a smaller number
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
        from stages.weights.tensors import write_rank

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
            files[path.relative_to(unfinished).as_posix()] = digest_entry(path)
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
    from stages.weights.tensors import load, merge_ranks, slices_of

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


def learner_sets(shape: ModelConfig, learner: Learner) -> dict[str, Arrays]:
    """Return weights and both moments on this worker, by the names of checkpoints."""
    from stages.grpo.parameters import unfuse

    model, optimizer = learner.model, learner.optimizer
    sets = {"weights": model.trainable_params(), "adam_m": optimizer.m, "adam_v": optimizer.v}
    return {
        name: unfuse(
            shape, {key: parameter.asnumpy() for key, parameter in zip(model.names, parameters, strict=True)}
        )
        for name, parameters in sets.items()
    }


def load_checkpoint(
    shape: ModelConfig, learner: Learner, path: Path, strategy: Strategy | None, rank: int
) -> dict[str, Any]:
    """Load weights, moments and the counts of updates from a checkpoint of any layout; return its state.

    Raises:
        InputError: the checkpoint is damaged.
    """
    from stages.grpo.operators import overwrite
    from stages.grpo.parameters import fuse

    state = read_state(path)
    learner.model.load(fuse(shape, read_set(path, "weights", strategy, rank)))
    for name, parameters in (("adam_m", learner.optimizer.m), ("adam_v", learner.optimizer.v)):
        fused = fuse(shape, read_set(path, name, strategy, rank))
        for key, moment in zip(learner.model.names, parameters, strict=True):
            overwrite(moment, fused[key])
    learner.updates = int(state["updates"])
    learner.schedule_position = int(state["step"]) * learner.config.updates_per_step
    return state


def save(trainer: Trainer, checkpoints: Checkpoints, step: int, best: Mapping[str, Any]) -> None:
    """Write a checkpoint; all workers call this. `best`: the fields of stages.grpo.stage.Best."""
    from stages.grpo.parameters import unfuse

    sets = learner_sets(trainer.job.model, trainer.learner)
    if trainer.reference is not None and trainer.job.train.ref_model_sync_steps:
        sets["reference"] = unfuse(trainer.job.model, trainer.reference.model.weights())
    state = {"updates": trainer.learner.updates, "position": trainer.position, "best": dict(best)}
    checkpoints.save(step, sets, state, best["step"])


def restore(trainer: Trainer, checkpoints: Checkpoints) -> tuple[int, dict[str, Any]]:
    """Restore the newest undamaged checkpoint, else train.resume_from.

    Returns:
        its step and state; 0 and nothing without one.

    Raises:
        ConfigError: train.resume_from is not grpo's, or leaves nothing to train.
        InputError: train.resume_from is damaged, or of another model.
    """
    from stages.grpo.parameters import fuse

    step, elsewhere = checkpoints.newest(trainer.job.train.keep_best), trainer.job.train.resume_from
    if step is None:
        if elsewhere is None:
            return 0, {}
        path = Path(elsewhere)
        problem = flaw(path) if trainer.rank == 0 else None
        if not trainer.minimum(int(problem is None)):
            rule = f"is damaged: {problem or 'see the log of worker 0'}"
            raise InputError("train.resume_from", elsewhere, rule, REMEDY)
        if problems := list(check_resumed(trainer.job.train, read_state(path))):
            raise ConfigError(problems)
    else:
        path = checkpoints.path(step)
    shape, policy, reference, rank = trainer.job.model, trainer.policy, trainer.reference, trainer.rank
    state = load_checkpoint(shape, trainer.learner, path, policy.strategy, rank)
    # The checkpoint of a run whose reference did not move has none.
    moved = trainer.job.train.ref_model_sync_steps > 0 and (path / "reference").exists()
    if reference is not None and moved:
        reference.model.load(fuse(shape, read_set(path, "reference", reference.strategy, rank)))
    trainer.position = int(state["position"])
    if step is None:
        state["best"] = {}  # of another run, on other prompts
    return int(state["step"]), state
