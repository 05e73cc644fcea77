"""Somebody else's program that does a stage's work: prepare, start, watch, prove, bring home.

stages.base.graph.Program names a module with the functions of Module.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from launch.nodes.start import Start
from stages.base.follow import Follower, Silence
from stages.grpo.metrics import StepLog, TensorBoard, read_rows

if TYPE_CHECKING:
    from stages.base.context import Context

START_FILE = "start.json"
NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
"""Pattern of a number in a log."""
Row = dict[str, float]
"""Our metrics of a step, by name."""
Report = Callable[[float, float, str], None]
"""Step, total, message."""
_LINE = 160
"""Characters of a line that are shown."""


def write_start(work: Path, start: Start, results: Path | None = None, **record: Any) -> None:
    """Write what launch is to start, beside what `collect` wants to be told.

    Args:
        work: where the file appears.
        start: what launch is told.
        results: directory whose files prove that the program has worked, but for those that lie there now.
        record: more values for `collect`.
    """
    files = results.rglob("*") if results is not None and results.is_dir() else ()
    earlier = {str(file): _state(file) for file in files if file.is_file()}
    content = {"start": dataclasses.asdict(start), "earlier": earlier, **record}
    (work / START_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def begun(work: Path) -> dict[str, Any]:
    """Read what `write_start` wrote; "logs" is the directory of the attempt's logs."""
    content: dict[str, Any] = json.loads((work / START_FILE).read_text(encoding="utf-8"))
    return content


def is_new(file: Path, earlier: Mapping[str, list[int]]) -> bool:
    """Return True if `file` was written after `write_start` recorded `earlier`, by any clock."""
    return file.is_file() and earlier.get(str(file)) != _state(file)


def _state(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def contains_line(log: Path, text: str) -> bool:
    """Return True if a line of a log, which may have gigabytes, contains `text`."""
    if not log.exists():
        return False
    with log.open(encoding="utf-8", errors="replace") as lines:
        return any(text in line for line in lines)


def move_in(source: Path, target: Path) -> None:
    """Link or copy a file: the checkpoint stays until the artifact is committed."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def dump(values: Mapping[str, Any]) -> str:
    """YAML text in the order of the keys."""
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return text


def bring_ranks(files: Sequence[Path], output: Path) -> None:
    """Trained weights, a file of each rank, into the artifact."""
    for rank, source in enumerate(files):
        target = output / "train" / f"rank_{rank}" / source.name
        target.parent.mkdir(parents=True)
        move_in(source, target)


def bring_home(context: Context, resumed_from: Any, checkpoint: str, contract: str, **more: Any) -> None:
    """Metrics, completions, rendered files and result of a grpo run into the artifact.

    Args:
        context: the stage's; metrics.jsonl has grown in its work directory.
        resumed_from: what the run went on from; None: it began.
        checkpoint: name of the final one.
        contract: the program's.
        more: what else the result says.
    """
    rows = read_rows(context.work / "metrics.jsonl")
    TensorBoard(context.output / "tensorboard", rows).close()
    for name in ("metrics.jsonl", "completions.jsonl"):
        if (context.work / name).exists():
            shutil.copyfile(context.work / name, context.output / name)
    shutil.copytree(context.work / "configs", context.output / "configs")
    result = {
        "steps": rows[-1]["step"] if rows else 0,
        "final_reward": rows[-1].get("reward") if rows else None,
        "resumed_from": resumed_from,
        "checkpoint": checkpoint,
        "contract": contract,
    }
    context.write_result({**result, **more})


class Steps:
    """metrics.jsonl of a run under way, and completions.jsonl where it says any."""

    def __init__(self, work: Path, *more: str) -> None:
        """Begin; `more` is completions.jsonl where there is one."""
        self._files = [work / name for name in ("metrics.jsonl", *more)]
        self._logs: list[StepLog] = []
        self.last = 0

    def begin(self, step: int) -> None:
        """Drop what a killed attempt wrote from this step on."""
        self._logs = [StepLog(file, step - 1) for file in self._files]

    def write(self, row: Row, completions: Iterable[Mapping[str, Any]] = ()) -> int:
        """Add a step, in the place of those that a run which Slurm started again repeats; its number."""
        step = int(row["step"])
        if not self._logs or step <= self.last:
            self.begin(step)
        self.last = step
        for log, rows in zip(
            self._logs, ([{**row, "step": step, "time_s": time.time()}], completions), strict=False
        ):
            log.append(rows)
        return step


class Watcher:
    """Follows one log; of a program that says nothing better it tells the last line."""

    def __init__(self, logs: Path, log: str, silence_timeout_s: float | None, report: Report) -> None:
        """Begin."""
        self.silence_timeout_s, self.report = silence_timeout_s, report
        self.silent_s, self._log = Silence(logs).seconds, Follower(logs / log)

    def poll(self, ended: bool = False) -> None:
        """Read what is new; cheap enough for ten calls a second."""
        for line in self._log.lines():
            self.read(line)

    def read(self, line: str) -> None:
        """Take in one line."""
        if line.strip():
            self.report(0, 1, line.strip()[:_LINE])


class Watch(Protocol):
    """Follows a run's logs."""

    @property
    def silence_timeout_s(self) -> float | None:
        """A run that is silent for longer is stopped as hung; None: never."""

    def poll(self, ended: bool = False) -> None:
        """Read what is new; called ten times a second, and once more when the run has ended."""

    def silent_s(self) -> float:
        """Seconds since a process last wrote a line."""


class Module(Protocol):
    """Functions of a module that has an outside program do a stage's work."""

    __name__: str

    def fresh(self, config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Start:
        """Return how to start a run; `inputs` need not exist yet."""

    def write_files(self, config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> None:
        """Write the files that such a run reads, as far as they follow from the configuration."""

    def watch(self, config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watch:
        """Follow a run whose logs appear in `logs`; metrics grow in `work`."""

    def prepare(self, context: Context) -> None:
        """Write what the program reads, in the work directory; ends in `write_start`.

        Raises:
            ConfigError: a rule is broken.
            InputError: an input is missing or holds too little.
        """

    def collect(self, context: Context) -> None:
        """Prove that the program has worked, and bring the result home.

        Raises:
            InputError: the proof is missing, whatever the exit code was.
        """
