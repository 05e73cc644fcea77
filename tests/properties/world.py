"""A store with stages that take milliseconds, in processes that are killed at any system call.

Plan, run, history, leases, locks, attempts, build and commit are the product's; only the stage's own process
is replaced by a function that writes files derived from its fingerprint.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.machine import environment
from launch.process.child import Outcome
from pipeline.config.load import load
from pipeline.errors import REPORTED
from pipeline.fingerprint import fingerprint
from pipeline.plan import checks
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.process import SPEC
from pipeline.run import build
from pipeline.run.run import Run
from pipeline.store import history
from pipeline.store.store import MANIFEST, Key, Store
from stages.base.graph import Stage

GRAPH = {"first": (), "second": ("first",), "third": ("first", "second"), "last": ("second", "third")}
SHARED = ("first", "second")
"""Stages whose artifacts all plans share."""
STEPS = 4
DEADLINE_S = 120.0
SYSTEM_CALLS = ("rename", "replace", "fsync", "unlink", "mkdir", "rmdir", "open", "chmod", "write")
DONE, FAILED, REFUSED, KILLED = 0, 1, 2, 9
FILES = ("result.json", "rows/part-0", "rows/part-1")
UNLISTED = "unlisted"
"""Name of a file that is added to artifacts."""


def make_plan(point: int) -> Plan:
    """Return the plan of a point."""
    specs: dict[str, StageSpec] = {}
    for stage, needs in GRAPH.items():
        config = {"value": 0 if stage in SHARED else point}
        inputs = {name: specs[name].key for name in needs}
        digests = {name: key.fingerprint for name, key in inputs.items()}
        digest = fingerprint(stage, 1, {"point": config}, digests, {})
        declared = Stage(stage, ())
        specs[stage] = StageSpec(declared, Key(stage, digest), 1, config, inputs, {})
    return Plan(load(["engine=local"]), tuple(specs.values()), {})


def expected_content(key: Key, name: str) -> bytes:
    """Return the content of an artifact's file, which follows from its fingerprint."""
    seed = hashlib.sha256(f"{key.stage} {key.fingerprint} {name}".encode()).digest()
    return seed * (1 + seed[0] % 64)


def is_intact(path: Path, key: Key) -> bool:
    """Return True if an artifact has the expected content, without using code under test."""
    files = {file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir()}
    if files - {UNLISTED} != {*FILES, MANIFEST}:
        return False
    return all((path / name).read_bytes() == expected_content(key, name) for name in FILES)


class World:
    """One store, and the log of stages that ran."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.store = directory, Store(directory / "store")
        self.plans = [make_plan(point) for point in range(3)]
        self.keys = list(dict.fromkeys(spec.key for plan in self.plans for spec in plan.specs))
        self.store.root.mkdir()

    def started(self) -> list[tuple[str, int]]:
        """Return the stages that ran in any process, in order, each with the step from which it resumed."""
        log = self.directory / "started.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(artifact, step) for artifact, step in map(json.loads, lines)]

    def fork(self, work: Callable[[], int], crash: int | None = None, clock_s: float = 0.0) -> int:
        """Start `work` in a child that dies at system call number `crash`; return its process id."""
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(null, stream)
            signal.alarm(int(DEADLINE_S))
            real = time.time
            time.time = lambda: real() + clock_s
            if crash is not None:
                _die_at_system_call(crash)
            os._exit(work())
        except BaseException:
            (self.directory / "traceback").write_text(traceback.format_exc())
        finally:
            os._exit(70)  # also if the traceback can't be written; the child must never continue with pytest

    def wait(self, child: int) -> int:
        """Return the exit code of a child; raise AssertionError if it hung or had a traceback."""
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code != -signal.SIGALRM, f"a process hung for {DEADLINE_S} s"
        file = self.directory / "traceback"
        assert code in (DONE, FAILED, REFUSED, KILLED), file.read_text() if file.exists() else code
        return code

    def run(self, *points: int) -> Callable[[], int]:
        """Return a function that does the work of `grpoflow run`, or of a sweep for several points."""

        def work() -> int:
            environment.package_checks = lambda needed: []  # type: ignore[assignment]
            checks.warnings = lambda *_: []  # type: ignore[assignment]
            build._git_commit = lambda: None  # type: ignore[assignment]
            build.job.run = self._run_stage  # type: ignore[assignment]
            try:
                label = "[{}] " if len(points) > 1 else ""
                runs = [
                    Run(self.plans[point], self.store, [f"point={point}"], label.format(point))
                    for point in points
                ]
                for stage in GRAPH:
                    for run in runs:
                        run.build(stage)
                for run in runs:
                    history.record(self.store.root, run.id, "finished", result={})
            except REPORTED:
                return FAILED
            return DONE

        return work

    def _run_stage(self, command: Any, *, log_dir: Path, on_poll: Callable[[], None], **_: Any) -> Outcome:
        """Do the work of a stage's process: STEPS steps with a checkpoint after each, then the files."""
        spec = json.loads((log_dir / SPEC).read_text())
        output, work = Path(spec["output"]), Path(spec["work"])
        key = next(key for key in self.keys if key.flat == log_dir.name.partition("+")[0])
        for name, path in spec["inputs"].items():
            source = next(k for k in self.keys if k.stage == name and Path(path) == self.store.path(k))
            assert is_intact(Path(path), source), f"{key} reads a damaged {source}"
        checkpoint = work / "checkpoint"
        reached = int(checkpoint.read_text()) if checkpoint.exists() else 0
        with (self.directory / "started.jsonl").open("a") as log:
            log.write(json.dumps([str(key), reached]) + "\n")
        for step in range(reached + 1, STEPS + 1):
            unfinished = work / f".checkpoint-{os.getpid()}"
            unfinished.write_text(str(step))
            unfinished.replace(checkpoint)
            on_poll()
        for name in FILES:
            (output / name).parent.mkdir(exist_ok=True)
            (output / name).write_bytes(expected_content(key, name))
        return Outcome(time.time(), time.time(), 0.0)


def _die_at_system_call(crash: int) -> None:
    """Let this process end without cleanup, like kill -9, at system call number `crash`."""
    left = [crash]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)
            return real(*arguments, **options)

        return call

    for name in SYSTEM_CALLS:
        setattr(os, name, counted(getattr(os, name)))
    io.open = counted(io.open)
