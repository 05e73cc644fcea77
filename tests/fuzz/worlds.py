"""A store with stages so cheap that a run takes milliseconds, in processes killed at any system call.

What runs is the product's: plan, run, history, leases, locks, attempts, build, commit. Only the stage's own
process is played, by a function that writes what follows from its inputs; and of the stage third, which an
outside engine does, the program that trains between its two processes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.machine import environment
from launch.process.child import Outcome
from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.engines import program as outside
from pipeline.errors import REPORTED
from pipeline.fingerprint import fingerprint
from pipeline.plan.graph import Plan, StageSpec
from pipeline.run import build
from pipeline.run import run as running
from pipeline.store import history
from pipeline.store.store import MANIFEST, Key, Store
from stages.base.graph import Program
from stages.engines.outside import START_FILE

GRAPH = {"first": (), "second": ("first",), "third": ("first", "second"), "last": ("second", "third")}
SHARED = ("first", "second")
"""Stages that all points have in common."""
PROGRAM = Program("played", "none", version=1)
STEPS = 4
DEADLINE_S = 120.0
CALLS = ("rename", "replace", "fsync", "unlink", "mkdir", "rmdir", "open", "chmod", "write")
DONE, FAILED, REFUSED, KILLED = 0, 1, 2, 9


def plan_of(config: Config, point: int) -> Plan:
    """A point's plan."""
    specs: dict[str, StageSpec] = {}
    for stage, needs in GRAPH.items():
        part = {"value": 0 if stage in SHARED else point}
        inputs = {name: specs[name].key for name in needs}
        digits = fingerprint(stage, 1, {"point": part}, {n: key.fingerprint for n, key in inputs.items()}, {})
        program = PROGRAM if stage == "third" else None
        specs[stage] = StageSpec(Key(stage, digits), 1, part, inputs, {}, 1, False, None, program)
    return Plan(config, tuple(specs.values()), {})


def content(key: Key, name: str) -> bytes:
    """What a stage writes: decided by its identity alone, so that anybody can tell whether it is right."""
    seed = hashlib.sha256(f"{key.stage} {key.fingerprint} {name}".encode()).digest()
    return seed * (1 + seed[0] % 64)


STRANGER = "stranger"
FILES = ("result.json", "rows/part-0", "rows/part-1")


def is_right(path: Path, key: Key) -> bool:
    """Whether an artifact holds what the stage wrote; asks none of the code under test.

    A file more is none of the store's business while something runs (a file system may put it there); verify
    tells of it.
    """
    found = {one.relative_to(path).as_posix() for one in path.rglob("*") if not one.is_dir()}
    if found - {STRANGER} != {*FILES, MANIFEST}:
        return False
    return all((path / name).read_bytes() == content(key, name) for name in FILES)


@dataclass(frozen=True)
class Event:
    """A stage that ran, and from which step it went on."""

    key: str
    start: int


class World:
    """One store, wherever it is just now, and what was seen of it."""

    def __init__(self, root: Path) -> None:
        """Begin in an empty directory."""
        self.base, self.moves = root, 0
        self.config = load(["engine=local"])
        self.plans = [plan_of(self.config, point) for point in range(3)]
        self.store.root.mkdir(parents=True)

    @property
    def store(self) -> Store:
        """The store."""
        return Store(self.base / f"store{self.moves}")

    @property
    def keys(self) -> list[Key]:
        """All artifacts that there can be."""
        return list(dict.fromkeys(spec.key for plan in self.plans for spec in plan.specs))

    def move(self) -> None:
        """Somebody moves the store."""
        before = self.store.root
        self.moves += 1
        before.rename(self.store.root)

    def events(self) -> list[Event]:
        """Stages that ran, all processes together, in order."""
        log = self.base / "events.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [Event(*json.loads(line)) for line in lines]

    def start(self, work: Callable[[], int], crash: int | None = None, clock: float = 0.0) -> int:
        """Begin `work` in a child, which is killed at its system call number `crash`; its process id."""
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(quiet, stream)
            signal.alarm(int(DEADLINE_S))
            _shift(clock)
            if crash is not None:
                _count(crash)
            os._exit(work())
        except BaseException:
            (self.base / "traceback").write_text(_traceback())
            os._exit(70)

    def wait(self, child: int) -> int:
        """The exit code of a child.

        Raises:
            AssertionError: it hung, or ended with a traceback.
        """
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code != -signal.SIGALRM, f"a process hung for {DEADLINE_S} s"
        told = self.base / "traceback"
        assert code in (DONE, FAILED, REFUSED, KILLED), told.read_text() if told.exists() else code
        return code

    def run(self, *points: int) -> Callable[[], int]:
        """What `grpoflow run` does, for a child; of several points, what `grpoflow sweep` does."""

        def work() -> int:
            environment.problems = list  # type: ignore[assignment]
            build._git_commit = lambda: None  # type: ignore[assignment]
            build.job.run = self._stage  # type: ignore[assignment]
            outside._module = lambda spec: Played  # type: ignore
            outside.nodes, outside.read = Played, lambda *_: None  # type: ignore
            try:
                runs = {}
                for point in points:
                    label = f"[{point}] " if len(points) > 1 else ""
                    runs[point] = running.Run(self.plans[point], self.store, [f"point={point}"], label)
                for stage in GRAPH:
                    for run in runs.values():
                        run.build(stage)
                for point, run in runs.items():
                    history.record(self.store.root, run.id, "finished", result={"point": point})
            except REPORTED:
                return FAILED
            return DONE

        return work

    def _stage(self, command: Any, *, log_dir: Path, on_poll: Callable[[], None], **_: Any) -> Outcome:
        """The stage's own process: STEPS steps with a checkpoint after each, then its files.

        Of an outside engine's, the one before its program (prepare), or the one after it (collect).
        """
        part = command[2].rpartition(":")[2]
        spec = json.loads((log_dir / build.SPEC).read_text())
        output, work = Path(spec["output"]), Path(spec["work"])
        key = next(key for key in self.keys if key.flat == log_dir.name.partition("+")[0])
        for name, path in spec["inputs"].items():
            needed = next(k for k in self.keys if k.stage == name and Path(path) == self.store.path(k))
            assert is_right(Path(path), needed), f"{key} was given a damaged {needed}"
        if part != "collect":
            with (self.base / "events.jsonl").open("a") as log:
                log.write(json.dumps([str(key), _reached(work)]) + "\n")
        if part == "prepare":
            (work / START_FILE).write_text('{"start": {}}')
        elif part != "collect":
            _train(work, on_poll)
        for name in FILES if part != "prepare" else ():
            (output / name).parent.mkdir(exist_ok=True)
            (output / name).write_bytes(content(key, name))
        now = time.time()
        return Outcome(now, now, 0.0)


class Played:
    """An outside engine's module, its launch and its watcher, as pipeline.engines.program wants them."""

    silence_timeout_s = DEADLINE_S

    @classmethod
    def watch(cls, *_: Any) -> type[Played]:
        """A watcher."""
        return cls

    @staticmethod
    def poll(ended: bool = False) -> None:
        """Nothing is logged."""

    @staticmethod
    def silent_s() -> float:
        """It never hangs."""
        return 0.0

    @staticmethod
    def run(_: None, *, directory: Path, on_poll: Callable[[], None], **__: Any) -> Outcome:
        """The program, which trains."""
        now = time.time()
        _train(directory.parent, on_poll)
        return Outcome(now, now, 0.0)


def _reached(work: Path) -> int:
    """The step of the last checkpoint; 0: there is none."""
    return int((work / "checkpoint").read_text()) if (work / "checkpoint").exists() else 0


def _train(work: Path, on_poll: Callable[[], None]) -> None:
    for step in range(_reached(work) + 1, STEPS + 1):
        unfinished = work / f".checkpoint-{os.getpid()}"
        unfinished.write_text(str(step))
        unfinished.replace(work / "checkpoint")
        on_poll()


def _shift(seconds: float) -> None:
    real = time.time
    time.time = lambda: real() + seconds


def _count(crash: int) -> None:
    """Die at system call number `crash`, without a last word, as kill -9 does it."""
    left = [crash]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)
            return real(*arguments, **more)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    io.open = counted(io.open)


def _traceback() -> str:
    import traceback

    return traceback.format_exc()


def files_of(path: Path) -> Iterator[Path]:
    """The files of an artifact, its manifest among them."""
    yield from sorted(one for one in path.rglob("*") if one.is_file())
