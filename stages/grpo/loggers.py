"""Loggers for wandb and swanlab, which follow metrics.jsonl; offline unless the environment says otherwise.

Both packages would also record the machine, the command line, the code and the output. All of that is
switched off, because artifacts may be given to other people.

Each logger runs in a process of its own, because its client can hang (a server that does not answer, a full
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stages.base.context import Context
from stages.base.follow import Follower

PROJECT = "grpoflow"
LOOK_EVERY_S = 0.5
CLOSE_S = 60.0
"""Seconds that a logger has to write its remaining rows after training, before it is killed."""
END = b"end\n"
Row = Mapping[str, Any]


class Package(Protocol):
    """Interface that takes the rows of metrics one by one."""

    def add(self, row: Row) -> None:
        """Add one step."""

    def close(self) -> None:
        """Write out what is buffered."""


class Wandb:
    """A run of wandb; WANDB_MODE, WANDB_API_KEY and its other variables count."""

    def __init__(self, scratch: Path, target: Path, name: str, config: Row) -> None:
        """Begin a run in `scratch`; `close` copies its files to `target`."""
        import wandb

        self.wandb, self.scratch, self.target = wandb, scratch / "wandb", target / "wandb"
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_meta=True,
            x_disable_stats=True, x_disable_machine_info=True, x_save_requirements=False,
        )  # fmt: skip
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(
            project=PROJECT, name=name, dir=str(scratch), mode=mode, config=dict(config), settings=settings
        )

    def add(self, row: Row) -> None:
        """Add one step."""
        self.run.log(numbers(row), step=row["step"])

    def close(self) -> None:
        """End the run; `wandb sync DIRECTORY` uploads what was written offline."""
        self.run.finish()
        self.wandb.teardown()  # only then has its writing process put everything on disk
        keep(self.scratch, self.target, ("logs", "tmp"))


class Swanlab:
    """An experiment of swanlab; SWANLAB_MODE and its other variables count."""

    def __init__(self, scratch: Path, target: Path, name: str, config: Row) -> None:
        """Begin an experiment in `scratch`; `close` copies its files to `target`."""
        import swanlab

        self.swanlab, self.scratch, self.target = swanlab, scratch / "swanlab", target / "swanlab"
        self.scratch.mkdir(parents=True)
        settings = swanlab.Settings(
            metadata_collect=False, collect_hardware=False, collect_runtime=False, requirements_collect=False,
            hardware_monitor=False, log_proxy_type="none",
        )  # fmt: skip
        mode: Any = os.environ.get("SWANLAB_MODE", "offline")
        swanlab.init(
            project=PROJECT, experiment_name=name, logdir=str(self.scratch), mode=mode, config=dict(config),
            settings=settings,
        )  # fmt: skip

    def add(self, row: Row) -> None:
        """Add one step."""
        self.swanlab.log(numbers(row), step=row["step"], print_to_console=False)

    def close(self) -> None:
        """End the experiment; `swanlab sync DIRECTORY` uploads what was written offline."""
        self.swanlab.finish()
        # Offline, swanlab 0.6.4 ignores its settings and writes a description of the machine.
        for name, nothing in (("swanlab-metadata.json", "{}"), ("requirements.txt", "")):
            for file in self.scratch.glob(f"run-*/files/{name}"):
                file.write_text(nothing, encoding="ascii")
        keep(self.scratch, self.target, ())


PACKAGES: dict[str, type[Wandb] | type[Swanlab]] = {"wandb": Wandb, "swanlab": Swanlab}


class Logger:
    """A package's process, seen from the trainer."""

    def __init__(self, name: str, scratch: Path, context: Context, metrics: Path) -> None:
        """Start it; it begins with the rows that are there already."""
        self.name = name
        self._told = False
        spec = scratch / f"{name}.json"
        values = {"scratch": scratch, "target": context.output, "metrics": metrics}
        texts = {key: str(value) for key, value in values.items()}
        run = {"name": context.work.name, "config": dict(context.config)}
        spec.write_text(json.dumps({**texts, **run}), encoding="utf-8")
        program = [sys.executable, "-m", "stages.grpo.loggers", name, str(spec)]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE)

    def has_stopped(self) -> bool:
        """Return True, after a warning, if the process has ended too early."""
        if self._process.poll() is None:
            return False
        self._warn(f"has stopped (exit code {self._process.returncode})")
        return True

    def end(self) -> None:
        """Say that no row will come any more."""
        pipe = self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            if pipe is not None and not pipe.closed:
                pipe.write(END)
                pipe.close()

    def wait(self, deadline: float) -> None:
        """Let it write out the rest until `deadline` (monotonic, seconds)."""
        try:
            if self._process.wait(max(0.0, deadline - time.monotonic())) != 0:
                self._warn(f"has stopped (exit code {self._process.returncode})")
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._warn(f"took more than {CLOSE_S:.0f} s to end and was ended")

    def _warn(self, what: str) -> None:
        if not self._told:
            consequence = "training goes on without it; metrics.jsonl holds every number"
            print(f"warning: {self.name} {what}: {consequence}", file=sys.stderr, flush=True)
        self._told = True


def open_loggers(names: Sequence[str], context: Context, metrics: Path) -> list[Logger]:
    """Start loggers by the names of train.loggers, which follow `metrics` from its first row on."""
    scratch = context.work / "loggers"
    shutil.rmtree(scratch, ignore_errors=True)  # a killed attempt's; its rows are logged again
    scratch.mkdir(parents=True)
    return [Logger(name, scratch, context, metrics) for name in names]


def close_loggers(loggers: Sequence[Logger]) -> None:
    """End all of them, together within CLOSE_S."""
    for logger in loggers:
        logger.end()
    deadline = time.monotonic() + CLOSE_S
    for logger in loggers:
        logger.wait(deadline)


def follow(package: Package, metrics: Path, ended: int) -> bool:
    """Hand on the rows that `metrics` gets, until `ended` (a file descriptor) says that it gets no more.

    Returns:
        False when the other end went away without saying so: a killed attempt, whose log nobody keeps.
    """
    follower, received = Follower(metrics), b""
    while True:
        over = bool(select.select([ended], [], [], LOOK_EVERY_S)[0])
        if over:
            received = os.read(ended, len(END))
        for line in follower.lines():
            package.add(json.loads(line))
        if over:
            return received == END


def main(name: str, spec: Path) -> None:
    """Run a package's process until the trainer ends it."""
    values = json.loads(spec.read_text(encoding="utf-8"))
    scratch, target = Path(values["scratch"]), Path(values["target"])
    package = PACKAGES[name](scratch, target, values["name"], values["config"])
    if follow(package, Path(values["metrics"]), sys.stdin.fileno()):
        package.close()
    else:
        os._exit(1)  # whatever the package would still do at the end


def numbers(row: Row) -> dict[str, Any]:
    """Return a row without the columns that loggers count themselves."""
    return {name: value for name, value in row.items() if name not in ("step", "time_s")}


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
