"""`grpoflow run engine=mindrlhf` around mindrlhf itself, on one CPU, and what is looked at afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.conftest import Finished
from tests.e2e.outside import living
from tests.upstream.mindrlhf.boxed_model import ADDENDS, special_ids

STEPS = 3
"""Of one epoch: 12 prompts, 4 a step."""
SIZE = (
    "dataset.train_rows=12",
    "dataset.test_rows=16",
    f"dataset.arith.min_addends={ADDENDS.min_addends}",
    f"dataset.arith.max_addends={ADDENDS.max_addends}",
    "train.prompts_per_step=4",
    "train.checkpoint_every=1",
    "train.warmup_steps=1",
    "train.steps=6",
    "train.learning_rate=1e-4",
    "rollout.num_generations=4",
    "rollout.max_tokens=32",
    "tokenize.max_prompt_length=64",  # eight samples fit into a row of 2,048
    "evaluate.sample_prompts=8",
    "layout=dp1_mp1_pp1",
    "engine.pack_num=8",
    "engine.ref_model_batch_size=1",
)
TIMEOUT_S = 1500.0
"""Of one command; a minute where nothing else runs."""


@dataclass(frozen=True)
class Recipe:
    """Overrides with which a checkout, upstream's or a stand-in, is run."""

    model: Path
    home: Path
    engine: Sequence[str]
    """What this checkout needs besides."""

    def overrides(self, *more: str) -> list[str]:
        """All of them; later ones win."""
        return [
            "engine=mindrlhf",
            "model=tiny",
            "model.source=local",
            f"model.path={self.model}",
            *special_ids(self.model),
            *SIZE,
            f"engine.mindrlhf_home={self.home}",
            *self.engine,
            *more,
        ]


def command(store: Path, overrides: Sequence[str]) -> list[str]:
    """What a user types."""
    return [sys.executable, "-m", "pipeline.cli", "run", f"store={store}", *overrides]


def run(store: Path, overrides: Sequence[str], when: Callable[[], None] = lambda: None) -> Finished:
    """Type it, and wait; `when` is called twenty times a second meanwhile."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        running = subprocess.Popen(command(store, overrides), stdout=stdout, stderr=stderr, cwd=store.parent)
        deadline = time.monotonic() + TIMEOUT_S
        while running.poll() is None:
            assert time.monotonic() < deadline
            when()
            time.sleep(0.05)
        stdout.seek(0)
        stderr.seek(0)
        return Finished(running.returncode, stdout.read(), stderr.read())


def kill_at(store: Path, overrides: Sequence[str], line: str) -> None:
    """Type it, and kill it and all its workers as soon as worker 0 has logged a line with `line`."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with (store.parent / "stderr").open("w") as stderr:
        begun = subprocess.Popen(
            command(store, overrides), stdout=subprocess.DEVNULL, stderr=stderr, cwd=store.parent
        )
    deadline = time.monotonic() + TIMEOUT_S
    while not any(line in log for log in logs(store)):
        assert begun.poll() is None, (store.parent / "stderr").read_text()
        assert time.monotonic() < deadline, f"no line with {line!r} in {store}/.logs"
        time.sleep(0.05)
    begun.kill()
    begun.wait()
    for process in living(store):
        os.kill(process, signal.SIGKILL)
    while living(store):
        time.sleep(0.05)


def logs(store: Path, worker: int = 0) -> list[str]:
    """What a worker said in each attempt, oldest first."""
    files = sorted(store.glob(f".logs/grpo-*/attempt_*/worker_{worker}.log"), key=lambda one: one.parent.name)
    return [file.read_text(errors="replace") for file in files]


@dataclass(frozen=True)
class Finish:
    """A run that went from fetch to report."""

    store: Path
    log: str
    """Worker 0's."""
    done: Finished


def finish(recipe: Recipe, place: Path, *more: str) -> Finish:
    """Run to the end."""
    done = run(place / "store", recipe.overrides(*more))
    assert done.exit_code == 0, done.stderr
    (log,) = logs(place / "store")
    return Finish(place / "store", log, done)


@dataclass(frozen=True)
class Stopped:
    """A run that was killed, and the same command again."""

    store: Path
    left: Path
    """Copy of the directory in which it goes on, as the kill left it."""
    resumed: frozenset[str]
    """Files below its checkpoints when the second start had read them."""
    before: str
    """Worker 0's log up to the kill."""
    after: str
    """And of the second start."""
    done: Finished


def record(
    recipe: Recipe, place: Path, *more: str, first: Sequence[str] = (), at: str = "epoch: 0, step: 2 start"
) -> Stopped:
    """Kill a run when worker 0 logs `at`, then type the same command.

    Args:
        recipe: what is run.
        place: a directory of its own.
        more: overrides of both.
        first: overrides of the run that is killed.
        at: part of a log line, which the second start must log as well.
    """
    store = place / "store"
    kill_at(store, recipe.overrides(*more, *first), at)
    (work,) = store.glob(".work/grpo-*")
    left = Path(shutil.copytree(work, place / "left", symlinks=True))
    resumed: set[str] = set()

    def look() -> None:
        if not resumed and any(at in log for log in logs(store)[1:]):
            root = work / "checkpoints"
            resumed.update(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    done = run(store, recipe.overrides(*more), look)
    assert done.exit_code == 0, done.stderr
    before, after = logs(store)
    return Stopped(store, left, frozenset(resumed), before, after, done)
