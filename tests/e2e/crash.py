"""Trials of the crash matrix: kill -9 during a stage, check the store, run again, check again."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from launch.process.tree import end_job
from pipeline.store.store import Store
from pipeline.store.verify import verify
from tests.e2e.conftest import command, manifests, run
from tests.processes import living, wait_until


def kill_everything(orchestrator: subprocess.Popen[str], store: Path) -> None:
    """Kill a process tree with SIGKILL: orchestrator and its forks, stage, msrun and its workers."""
    forks = psutil.Process(orchestrator.pid).children(recursive=True)
    orchestrator.kill()
    for fork in forks:
        with contextlib.suppress(psutil.NoSuchProcess):
            fork.kill()
    for job in set(living(store).values()):
        end_job(job, grace_s=0.0)
    orchestrator.wait()


def start(store: Path, stage: str | None = None, sign: str | None = None) -> subprocess.Popen[str]:
    """Start a run; return when `stage` has begun and `sign` (a pattern below the store) matches."""
    errors = store.parent / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(command(store), stdout=subprocess.DEVNULL, stderr=stderr, text=True)
    wait_until(
        lambda: (
            (stage is None or f"{stage}: started" in errors.read_text())
            and (sign is None or list(store.glob(sign)))
        ),
        180,
        process,
        lambda: f"{stage} {sign} was not reached\n{errors.read_text()}",
    )
    return process


def durations(store: Path) -> dict[str, float]:
    """Return the duration of each stage in seconds."""
    results = {}
    for file in store.glob("[!.]*/[!.]*/manifest.json"):
        manifest = json.loads(file.read_text())
        results[manifest["stage"]] = manifest["ended"] - manifest["started"]
    return results


def trial(finished: Path, directory: Path, stage: str | None, share: float) -> bool:
    """Kill a stage after `share` of its usual time, and run again.

    Check that all artifacts are intact after the kill, and that the next run builds exactly what is missing.

    Args:
        finished: store of a finished run.
        directory: empty directory.
        stage: stage that is removed from a copy of the store; None to kill a run with an empty store.
        share: share of the stage's, or of the run's, usual time.

    Returns:
        True if the kill came before the last commit.
    """
    store, usual = directory / "store", durations(finished)
    if stage is not None:
        shutil.copytree(finished, store, symlinks=True)
        shutil.rmtree(store / stage)
    process = start(store, stage)
    time.sleep(share * (sum(usual.values()) if stage is None else usual[stage]))
    kill_everything(process, store)
    assert list(verify(Store(store), deep=True)) == []
    before = manifests(store)
    again = run(store)
    assert again.exit_code == 0, again.stderr
    assert set(again.started) == usual.keys() - before.keys()
    after = manifests(store)
    assert {name: after[name] for name in before} == before and after.keys() == usual.keys()
    assert list(verify(Store(store), deep=True)) == []
    assert not list(store.glob("*/.building-*"))
    # Killed between its commit and the removal of its work directory, which is then left to gc.
    assert {path.name.partition("-")[0] for path in store.glob(".work/*")} <= before.keys()
    return bool(again.started)
