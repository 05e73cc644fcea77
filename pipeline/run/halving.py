"""Early stop of a sweep's trainings by asynchronous successive halving (ASHA).

Some checks of a training on held-out prompts, further and further apart, are its rungs. A training goes on
after a rung only if its accuracy is among the best 1/eta of the trainings that have reached this rung so far,
itself included; while fewer than eta have, it must be the best of them. Nothing waits: the first to arrive
always goes on, and a training that was stopped is not taken up again when later ones turn out worse.

Source: L. Li et al., "A System for Massively Parallel Hyperparameter Tuning" (arXiv:1810.05934), in the
variant that stops instead of pausing, as Optuna's SuccessiveHalvingPruner does. Optuna is not used here: it
brings SQLAlchemy and alembic for a rule of a few lines, and its trials would be a second record beside the
store. A test compares both decisions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.config.sections import SweepConfig
from pipeline.errors import ConfigError, store_errors
from pipeline.plan.graph import Plan
from pipeline.store.leases import locked
from stages.base.files import read_json, replace_file
from stages.base.reader import read
from stages.grpo.config import TrainConfig
from stages.grpo.metrics import read_rows

FILE = "rungs.json"
"""Name of the record of all rungs in the directory of a sweep."""
TRAINING, METRICS, ACCURACY = "grpo", "metrics.jsonl", "validation_accuracy"


@dataclass(frozen=True)
class Rung:
    """A training at one of its rungs, and whether it went on."""

    artifact: str
    """grpo/FIRST-16-DIGITS."""
    number: int
    """From 1."""
    step: int
    accuracy: float
    """On held-out prompts, after the step."""
    needed: float
    """Least accuracy that went on."""
    compared: int
    """Number of trainings that had reached the rung, this one included."""
    goes_on: bool

    def __str__(self) -> str:
        place = f"rung {self.number}, after step {self.step}"
        values = f"accuracy {self.accuracy:.4g}, and {self.needed:.4g} was needed"
        return f"{place}: {values} among {self.compared} trainings"


class StoppedEarly(Exception):
    """A training is stopped at a rung, because others were better."""

    def __init__(self, rung: Rung) -> None:
        self.rung = rung
        super().__init__(str(rung))


def goes_on(accuracy: float, others: Iterable[float], reduction_factor: int) -> tuple[bool, float]:
    """Decide whether a training goes on after a rung; return that, and the least accuracy that does.

    Args:
        accuracy: its accuracy at the rung.
        others: those of the other trainings that have reached the rung.
        reduction_factor: eta; the best 1/eta go on, at least the best, and all that equal the last of them.
    """
    best_first = sorted([accuracy, *others], reverse=True)
    needed = best_first[max(1, len(best_first) // reduction_factor) - 1]
    return accuracy >= needed, needed


def rung_steps(train: TrainConfig, sweep: SweepConfig) -> Iterator[int]:
    """Yield the steps of the rungs, checks first_check · eta^k for k = 0, 1, …, before the last step."""
    check = sweep.first_check
    while train.validate_every and check * train.validate_every < train.steps:
        yield check * train.validate_every
        check *= sweep.reduction_factor


class Halving:
    """The rungs of a sweep's trainings, recorded in STORE/sweeps/ID/rungs.json.

    Several processes decide, one after the other under a lock. A decision stands, also for later processes.
    """

    def __init__(self, store: Path, sweep: str, config: SweepConfig) -> None:
        """Do not create the file yet."""
        self._store, self._config = store, config
        self._file = store / "sweeps" / sweep / FILE
        self._lock = store / ".locks" / f"sweep-{sweep}.lock"
        self._read_of: tuple[tuple[int, int, int], list[Rung]] | None = None
        """Inode, time and size of the file that was read last, and its content."""
        self._sizes: dict[str, int] = {}
        """Artifact -> bytes of its metrics that were read last."""

    def stop_of(self, plan: Plan) -> Rung | None:
        """Return the rung at which the training of a plan was stopped; None if it was not."""
        artifact = artifact_of(plan)
        return next((rung for rung in self._read() if rung.artifact == artifact and not rung.goes_on), None)

    def check(self, plan: Plan, metrics: Path) -> None:
        """Decide about the rungs that a running training has reached according to its metrics.jsonl.

        Raises:
            StoppedEarly: the training must not go on.
            StoreError: the decision cannot be recorded.
        """
        artifact = artifact_of(plan)
        size = metrics.stat().st_size if metrics.exists() else 0
        if artifact is None or size == self._sizes.get(artifact, 0):
            return
        self._sizes[artifact] = size
        accuracies = _accuracies(metrics)
        with locked(self._lock, self._store):
            rungs = self._read(fresh=True)
            reached = list(self._reached(plan, artifact, accuracies, rungs))
            if new := [rung for rung in reached if rung not in rungs]:
                self._write([*rungs, *new])
        if reached and not reached[-1].goes_on:
            raise StoppedEarly(reached[-1])

    def _reached(
        self,
        plan: Plan,
        artifact: str,
        accuracies: Mapping[int, float],
        rungs: Sequence[Rung],
        is_complete: bool = False,
    ) -> Iterator[Rung]:
        """Yield the rungs of a training up to the first that it has not reached, or that stops it.

        `rungs` are those of all trainings so far: a decision among them stands. A training that is complete
        went on after all of its rungs.
        """
        known = {rung.step: rung for rung in rungs if rung.artifact == artifact}
        for number, step in enumerate(rung_steps(plan.config.train, self._config), start=1):
            if step not in known and step not in accuracies:
                return
            rung = known.get(step)
            if rung is None:
                accuracy, others = accuracies[step], [rung.accuracy for rung in rungs if rung.step == step]
                may, needed = goes_on(accuracy, others, self._config.reduction_factor)
                rung = Rung(artifact, number, step, accuracy, needed, len(others) + 1, may or is_complete)
            yield rung
            if not rung.goes_on:
                return

    def note(self, plan: Plan, metrics: Path) -> None:
        """Record the rungs of a training that is complete, whatever was decided about it: it went on."""
        artifact = artifact_of(plan)
        if artifact is None or not metrics.exists():
            return
        accuracies = _accuracies(metrics)
        with locked(self._lock, self._store):
            rungs = self._read(fresh=True)
            kept = [rung for rung in rungs if rung.artifact != artifact or rung.goes_on]
            reached = self._reached(plan, artifact, accuracies, kept, is_complete=True)
            kept += [rung for rung in reached if rung not in kept]
            if kept != rungs:
                self._write(kept)

    def forget(self, plans: Iterable[Plan]) -> None:
        """Remove the rungs of trainings that are made again."""
        artifacts = set(map(artifact_of, plans))
        with locked(self._lock, self._store):
            rungs = self._read(fresh=True)
            kept = [rung for rung in rungs if rung.artifact not in artifacts]
            if kept != rungs:
                self._write(kept)

    def _read(self, fresh: bool = False) -> list[Rung]:
        """Return all rungs, in the order of the decisions; none if the file is missing or damaged.

        `fresh`: open the file in any case, because a network file system may show its former time and size.
        """
        try:
            found = self._file.stat()
            identity = (found.st_ino, found.st_mtime_ns, found.st_size)
            if fresh or self._read_of is None or self._read_of[0] != identity:
                rungs = [read(Rung, values) for values in read_json(self._file)]
                self._read_of = identity, rungs
            return list(self._read_of[1])
        except (OSError, ValueError, TypeError, ConfigError):
            return []

    def _write(self, rungs: Sequence[Rung]) -> None:
        """Replace the file; the caller holds the lock."""
        text = json.dumps([asdict(rung) for rung in rungs], indent=1)
        with store_errors(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, text.encode())


def artifact_of(plan: Plan) -> str | None:
    """Return grpo/FIRST-16-DIGITS of a plan; None if it does not request the stage."""
    return next((str(spec.key) for spec in plan.requested if spec.name == TRAINING), None)


def _accuracies(metrics: Path) -> dict[int, float]:
    """Return the accuracies on held-out prompts, by step."""
    return {row["step"]: float(row[ACCURACY]) for row in read_rows(metrics) if ACCURACY in row}
