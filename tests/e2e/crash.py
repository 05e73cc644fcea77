"""Trials of the crash matrix: kill -9 during a stage, check the store, run again, check again."""

from __future__ import annotations

import contextlib
import json
import os
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
    for file in store.glob("[!.]*/*/manifest.json"):
        manifest = json.loads(file.read_text())
        results[manifest["stage"]] = manifest["ended"] - manifest["started"]
    return results


def trial(finished: Path, directory: Path, stage: str, share: float) -> bool:
    """Kill `stage` after `share` of the time that it usually takes, in a copy of a finished store.

    Check that all artifacts are intact afterwards, and that the next run builds only this stage.

    Returns:
        True if the kill came before the commit.
    """
    store = Path(shutil.copytree(finished, directory / "store", symlinks=True))
    usual = durations(store)[stage]
    shutil.rmtree(store / stage)
    before = manifests(store)
    process = start(store, stage)
    time.sleep(share * usual)
    kill_everything(process, store)
    assert list(verify(Store(store), deep=True)) == []
    again = run(store)
    assert again.exit_code == 0, again.stderr
    assert set(again.started) <= {stage}  # empty if the kill came after the commit
    after = manifests(store)
    assert {name: after[name] for name in before} == before
    assert after.keys() == {*before, stage}
    _nothing_left(store)
    os.rename(directory / "store", directory / f"done-{stage}-{share:.3f}")
    return bool(again.started)


def chain_trial(finished: Path, directory: Path, share: float) -> bool:
    """Kill a run that began with an empty store, after `share` of the usual time of all stages.

    Check that all artifacts are intact afterwards, and that the next run repeats none of them.

    Returns:
        True if the kill came before the last commit.
    """
    usual = durations(finished)
    store = directory / "store"
    process = start(store)
    time.sleep(share * sum(usual.values()))
    kill_everything(process, store)
    assert list(verify(Store(store), deep=True)) == []
    before = manifests(store)
    again = run(store)
    assert again.exit_code == 0, again.stderr
    assert set(again.started) == usual.keys() - before.keys()
    after = manifests(store)
    assert {name: after[name] for name in before} == before
    _nothing_left(store)
    return bool(again.started)


def _nothing_left(store: Path) -> None:
    """Check that the store contains intact artifacts and no files of attempts."""
    assert list(verify(Store(store), deep=True)) == []
    assert not list(store.glob("*/.building-*"))
    assert not list(store.glob(".work/*"))
