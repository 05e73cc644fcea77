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
from tests.e2e.conftest import command, damage, manifests, run
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


def start(
    store: Path, *stages: str, sign: str | None = None, line: list[str] | None = None
) -> subprocess.Popen[str]:
    """Start a run; return it when stages have begun and `sign` (a pattern below the store) matches.

    The file `stderr` next to the store receives the messages. In sweeps, a stage follows its point's label.
    """
    errors = store.parent / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            line or command(store), stdout=subprocess.DEVNULL, stderr=stderr, text=True
        )

    def reached() -> bool:
        begun = all(f"{stage}: started" in errors.read_text() for stage in stages)
        return begun and (sign is None or any(store.glob(sign)))

    wait_until(reached, 180, process, errors.read_text)
    return process


def durations(store: Path) -> dict[str, float]:
    """Return the duration of each stage in seconds."""
    results = {}
    for file in store.glob("[!.]*/[!.]*/manifest.json"):
        manifest = json.loads(file.read_text())
        results[manifest["stage"]] = manifest["ended"] - manifest["started"]
    return results


def trial(finished: Path, directory: Path, stage: str | None, share: float) -> bool:
    """Kill a stage after `share` of its usual time, and run again; return True if it was not committed yet.

    Check that all artifacts are intact after the kill, and that the next run builds exactly what is missing.
    The stage is missing in a copy of the store of a finished run; None: kill a run with an empty store.
    """
    store, usual = directory / "store", durations(finished)
    if stage is not None:
        shutil.copytree(finished, store, symlinks=True)
        shutil.rmtree(store / stage)
    process = start(store, *filter(None, [stage]))
    time.sleep(share * (sum(usual.values()) if stage is None else usual[stage]))
    kill_everything(process, store)
    assert damage(store) == []
    before = manifests(store)
    again = run(store)
    assert set(again.started) == usual.keys() - before.keys()
    after = manifests(store)
    assert {name: after[name] for name in before} == before and after.keys() == usual.keys()
    assert damage(store) == []
    assert not list(store.glob("*/.building-*"))
    # Killed between its commit and the removal of its work directory, which is then left to gc.
    assert {path.name.partition("-")[0] for path in store.glob(".work/*")} <= before.keys()
    return bool(again.started)
