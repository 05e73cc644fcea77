"""Sweeps with engine=sleeping, whose stages sleep and keep a journal: who ran what, when, and how often."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOY = Path(__file__).parents[1] / "data" / "sleeping_engine"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Event:
    """Line of the journal."""

    kind: str
    """begin, end, or twice if another process did the same at that time."""
    artifact: str
    where: str
    """Id of the Slurm job, or the name of the host."""
    pid: int
    time_s: float


def environment(journal: Path) -> dict[str, str]:
    """Return the environment in which engine=sleeping is installed and writes `journal`."""
    path = os.pathsep.join([str(TOY), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "SLEEPING_JOURNAL": str(journal)}


def overrides(store: Path, **seconds: float) -> list[str]:
    """Return the overrides of a run whose stages sleep for `seconds`, 1 by default."""
    times = [f"engine.{key}={value}" for key, value in seconds.items()]
    return ["engine=sleeping", "layout=dp1_mp1_pp1", f"store={store}", *times]


def command(verb: str, words: Sequence[str], *options: str) -> list[str]:
    """Return the command line of `grpoflow run` or `grpoflow sweep` that ends with grpo."""
    program = [sys.executable, "-m", "pipeline.cli", verb, "--only=grpo"]
    return [*program, f"--config-dir={TOY / 'conf'}", *options, *words]


def grid(seeds: int, rates: int) -> list[str]:
    """Return overrides of a sweep of seeds x rates points; those of a seed share split and sft."""
    learning_rates = ",".join(f"{0.0001 * (rate + 1):.4f}" for rate in range(rates))
    return [f"seed={','.join(map(str, range(seeds)))}", f"train.learning_rate={learning_rates}"]


def read(journal: Path) -> dict[str, list[Event]]:
    """Return the events of each artifact, in their order."""
    events = defaultdict(list)
    for line in journal.read_text().splitlines():
        kind, artifact, where, pid, time_s = line.split()
        events[artifact].append(Event(kind, artifact, where, int(pid), float(time_s)))
    return dict(events)
