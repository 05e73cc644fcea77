"""Processes of the trackers, which follow metrics.jsonl.

Each tracker runs in a process of its own, because its client can hang (a server that does not answer, a full
disk, the package's own threads). Training never waits for it, so a failure costs the log but no step.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from stages.base.context import Context
from stages.base.follow import Follower
from stages.grpo.trackers import Tracker
from stages.own_packages import START

LOOK_EVERY_S = 0.5
CLOSE_S = 60.0
"""Seconds that a logger has to write its remaining rows after training, before it is killed."""
END = b"end\n"


class TrackerProcess:
    """Process of a tracker."""

    def __init__(self, name: str, scratch: Path, context: Context, metrics: Path) -> None:
        """Start the process, which begins with the existing rows of `metrics`."""
        self.name = name
        self._has_warned = False
        spec = scratch / f"{name}.json"
        paths = {"scratch": str(scratch), "target": str(context.output), "metrics": str(metrics)}
        run = {"name": context.work.name, "config": dict(context.config)}
        spec.write_text(json.dumps(paths | run), encoding="utf-8")
        program = [sys.executable, START, "stages.grpo.trackers.process", name, str(spec)]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE)

    def has_stopped(self) -> bool:
        """Return True, after a warning, if the process has ended too early."""
        code = self._process.poll()
        if code is not None:
            self._warn(f"has stopped (exit code {code})")
        return code is not None

    def end(self) -> None:
        """Tell the process that no more rows follow."""
        assert self._process.stdin is not None  # PIPE
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(END)

    def wait(self, deadline: float) -> None:
        """Wait until the process has written its last rows, or kill it at `deadline` (monotonic, seconds)."""
        try:
            if code := self._process.wait(max(0.0, deadline - time.monotonic())):
                self._warn(f"has stopped (exit code {code})")
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._warn(f"took more than {CLOSE_S:.0f} s to end and was ended")

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            consequence = "training goes on without it; metrics.jsonl holds every number"
            print(f"warning: {self.name} {what}: {consequence}", file=sys.stderr, flush=True)
        self._has_warned = True


def start_trackers(names: Sequence[str], context: Context, metrics: Path) -> list[TrackerProcess]:
    """Start the trackers of train.loggers, which follow `metrics` from its first row on."""
    scratch = context.work / "loggers"
    shutil.rmtree(scratch, ignore_errors=True)  # a killed attempt's; its rows are logged again
    scratch.mkdir(parents=True)
    return [TrackerProcess(name, scratch, context, metrics) for name in names]


def end_trackers(processes: Sequence[TrackerProcess]) -> None:
    """End all trackers, together within CLOSE_S."""
    for process in processes:
        process.end()
    deadline = time.monotonic() + CLOSE_S
    for process in processes:
        process.wait(deadline)


def follow(tracker: Tracker, metrics: Path, ended: int) -> bool:
    """Pass new rows of `metrics` to a tracker until the pipe `ended` (a file descriptor) reports the end.

    Returns:
        False if the pipe was closed without a report: the attempt was killed, and its log is not needed.
    """
    follower, received = Follower(metrics), b""
    while True:
        over = bool(select.select([ended], [], [], LOOK_EVERY_S)[0])
        if over:
            received = os.read(ended, len(END))
        for line in follower.lines():
            tracker.add(json.loads(line))
        if over:
            return received == END


def main(name: str, spec: Path) -> None:
    """Run a tracker until the trainer ends it."""
    values = json.loads(spec.read_text(encoding="utf-8"))
    directory = Path(values["scratch"]) / name
    directory.mkdir()
    tracker: Tracker = import_module(f"stages.grpo.trackers.{name}").TRACKER(
        directory, values["name"], values["config"]
    )
    if not follow(tracker, Path(values["metrics"]), sys.stdin.fileno()):
        os._exit(1)  # without what the package would do at the end
    tracker.close()
    keep(directory, Path(values["target"]) / name, tracker.left_out)


def keep(source: Path, target: Path, left_out: Sequence[str]) -> None:
    """Copy a directory without some names and without links, which point to its original location.

    `target` appears complete or not at all, because this process may be killed.
    """

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name in left_out or (Path(folder) / name).is_symlink()]

    copy = source.with_name(f"{source.name}-copy")
    shutil.copytree(source, copy, ignore=ignored)
    copy.rename(target)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
