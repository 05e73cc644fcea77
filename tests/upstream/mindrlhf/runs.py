"""`grpoflow run engine=mindrlhf` with mindrlhf itself on one CPU, and the results of such runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.conftest import Finished
from tests.upstream.mindrlhf.boxed_model import ADDENDS, special_ids
from tests.upstream.programs import kill_when

STEPS = 3
"""Of one epoch: 12 prompts, 4 a step."""
SIZE = (
    "dataset.train_rows=12", "dataset.test_rows=16", f"dataset.arith.min_addends={ADDENDS.min_addends}",
    f"dataset.arith.max_addends={ADDENDS.max_addends}", "train.prompts_per_step=4",
    "train.checkpoint_every=1", "train.warmup_steps=1", "train.steps=6", "train.learning_rate=1e-4",
    "rollout.num_generations=4", "rollout.max_tokens=32", "evaluate.sample_prompts=8", "layout=dp1_mp1_pp1",
    "tokenize.max_prompt_length=64",  # eight samples fit into a row of 2,048
    "engine.pack_num=8", "engine.ref_model_batch_size=1",
)  # fmt: skip
TIMEOUT_S = 1500.0
"""Of one command; a minute where nothing else runs."""


@dataclass(frozen=True)
class Recipe:
    """Overrides of a run with a checkout of upstream or a stand-in."""

    model: Path
    home: Path
    engine: Sequence[str]
    """Further overrides for this checkout."""

    def overrides(self, *more: str) -> list[str]:
        """Return all overrides; later ones replace earlier ones."""
        model = ("model=tiny", "model.source=local", f"model.path={self.model}", *special_ids(self.model))
        home = f"engine.mindrlhf_home={self.home}"
        return ["engine=mindrlhf", *model, *SIZE, home, *self.engine, *more]


def command(store: Path, overrides: Sequence[str]) -> list[str]:
    """Return the command line of a run."""
    return [sys.executable, "-m", "pipeline.cli", "run", f"store={store}", *overrides]


def run(store: Path, overrides: Sequence[str]) -> Finished:
    """Run the command."""
    store.parent.mkdir(parents=True, exist_ok=True)
    line = command(store, overrides)
    done = subprocess.run(line, capture_output=True, text=True, cwd=store.parent, timeout=TIMEOUT_S)
    return Finished(done.returncode, done.stdout, done.stderr)


def logs(store: Path, worker: int = 0) -> list[str]:
    """Return a worker's log of each attempt, oldest first."""
    files = sorted(store.glob(f".logs/grpo-*/attempt_*/worker_{worker}.log"), key=lambda one: one.parent.name)
    return [file.read_text(errors="replace") for file in files]


@dataclass(frozen=True)
class Finish:
    """A finished run."""

    store: Path
    log: str
    """Log of worker 0."""
    done: Finished


def finish(recipe: Recipe, directory: Path, *more: str) -> Finish:
    """Run all stages."""
    done = run(directory / "store", recipe.overrides(*more))
    assert done.exit_code == 0, done.stderr
    (log,) = logs(directory / "store")
    return Finish(directory / "store", log, done)


@dataclass(frozen=True)
class Stopped:
    """A run that was killed, and its repetition."""

    store: Path
    left: Path
    """Copy of the work directory after the kill."""
    before: str
    """Worker 0's log up to the kill."""
    after: str
    """Worker 0's log of the second run."""


def record(recipe: Recipe, directory: Path, first: Sequence[str] = ()) -> Stopped:
    """Kill a run when step 2 begins, then repeat the command without the overrides `first`."""
    store, at = directory / "store", "epoch: 0, step: 2 start"
    killed = command(store, recipe.overrides(*first))
    kill_when(lambda: any(at in log for log in logs(store)), killed, store)
    (work,) = store.glob(".work/grpo-*")
    left = Path(shutil.copytree(work, directory / "left", symlinks=True))
    done = run(store, recipe.overrides())
    assert done.exit_code == 0, done.stderr
    before, after = logs(store)
    return Stopped(store, left, before, after)
