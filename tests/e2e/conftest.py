"""Complete runs with settings that take seconds; nothing is learned with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from pipeline.plan.explain import explain
from pipeline.run.run import prepare_plan
from pipeline.store.store import Store
from pipeline.store.verify import verify
from tests.processes import living

CHEAP = [
    "model.hidden_size=32", "model.num_hidden_layers=1", "model.intermediate_size=64",
    "model.initializer_range=0.02", "model.rope_theta=10000", "dataset.train_rows=96", "dataset.test_rows=32",
    "sft.stop_accuracy=0.5", "sft.steps=4", "sft.warmup_steps=4", "sft.learning_rate=1.5e-3",
    "sft.batch_size=16", "sft.check_every=4", "sft.check_prompts=16",
    "train.steps=4", "train.prompts_per_step=4", "train.warmup_steps=1", "train.checkpoint_every=1",
    "rollout.num_generations=4", "rollout.max_tokens=12",
    "evaluate.sample_prompts=8", "evaluate.batch_prompts=32",
]  # fmt: skip


@dataclass(frozen=True)
class Finished:
    """A finished `luigi --module pipeline RunGRPO`."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def result(self):
        """Values in the last line of stdout."""
        word, *pairs = self.stdout.strip().splitlines()[-1].split()
        assert word == "result", self.stdout + self.stderr
        return dict(pair.split("=", 1) for pair in pairs)

    @property
    def started(self):
        """Stages that were started, in order; of all points of a sweep."""
        lines = [line for line in self.stderr.splitlines() if line.endswith(": started")]
        return [line.rpartition("] ")[2].partition(":")[0] for line in lines]


def luigi(store, *overrides, task="RunGRPO"):
    """Return the command line of a run."""
    program = str(Path(sys.executable).parent / "luigi")
    return [program, "--module", "pipeline", task, "--overrides", json.dumps([f"store={store}", *overrides])]


def command(store, *overrides):
    """Return the command line with the cheap settings."""
    return luigi(store, *CHEAP, *overrides)


def finish(line, directory, timeout=500, env=None, code=None):
    """Run a command to its end, with exit code `code` if that is given."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=timeout, cwd=directory, env=env)
    assert code in (None, done.returncode), done.stdout + done.stderr
    return Finished(done.returncode, done.stdout, done.stderr)


def run_plain(store, *overrides, task="RunGRPO", code=None):
    """Run without the cheap settings."""
    return finish(luigi(store, *overrides, task=task), store.parent, code=code)


def run(store, *overrides, code=0):
    """Run with the cheap settings."""
    return run_plain(store, *CHEAP, *overrides, code=code)


def once(factory, name, build):
    """Return a store that one process of pytest-xdist creates for all, and the result of its run.

    Tests must not change it; a test that runs something in it uses a copy.
    """
    base = factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"once-{name}"
    store, ended = path / "store", path / "ended.json"
    with FileLock(f"{path}.lock"):
        if not ended.exists():
            path.mkdir()
            ended.write_text(json.dumps(asdict(build(store))))
    return store, Finished(**json.loads(ended.read_text()))


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """One finished run."""
    store, ended = once(tmp_path_factory, "finished", lambda store: run(store, code=None))
    assert ended.exit_code == 0, ended.stderr
    return store, ended


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished store that a test may change."""
    return Path(shutil.copytree(finished[0], tmp_path / "store", symlinks=True))


@pytest.fixture
def without(copy):
    """The copy without the artifacts of some stages."""

    def remove(*stages):
        for stage in stages:
            shutil.rmtree(copy / stage)
        shutil.rmtree(copy / ".logs")  # old logs would look like a running attempt
        return copy

    return remove


def to_build(store, *overrides):
    """Return the stages that a plan with the cheap settings would run."""
    rows = explain(*prepare_plan([*CHEAP, f"store={store}", *overrides]))
    return [row.stage for row in rows if row.state != "CACHED"]


def damage(store):
    """Return what `verify --deep` finds in a store."""
    return list(verify(Store(store), deep=True))


def manifests(store):
    """Return the time of the commit by stage (one artifact per stage)."""
    return {
        file.parent.parent.name: os.stat(file).st_mtime for file in store.glob("[!.]*/[!.]*/manifest.json")
    }


@pytest.fixture(scope="session")
def mindrlhf_prepared(tmp_path_factory):
    """A store in which everything before grpo is done; grpo was ended by a dead worker at step 0."""
    from tests.e2e import outside

    def build(store):
        fault = [outside.standin("die@0:1"), *outside.surrounded(store.parent)]
        done = run_plain(store, *outside.MINDRLHF, *fault)
        assert not living(store) and not list(store.glob("grpo/*/manifest.json"))
        for left in (".logs", ".work"):  # the state of the second worker is random
            shutil.rmtree(store / left, ignore_errors=True)
        return done

    store, ended = once(tmp_path_factory, "mindrlhf", build)
    assert ended.exit_code == 1, ended.stderr
    assert "out of memory, said worker 1" in ended.stderr and "worker_1.log" in ended.stderr
    return store


@pytest.fixture
def mindrlhf_store(mindrlhf_prepared, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(mindrlhf_prepared, tmp_path / "store", symlinks=True))
