"""Shared steps of stages whose work an external program does.

stages.base.graph.Program names a module with the functions of `Module`. For each attempt the pipeline calls
`prepare` in a stage process, starts the program described in start.json, follows its logs with `watch`, and
after exit code 0 calls `collect` in another stage process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import yaml

from launch.nodes.start import Start
from stages.base.errors import InputError
from stages.base.follow import Follower
from stages.engines.config import OutsideProgram
from stages.engines.upstream_keys import comment, merged
from stages.grpo.metrics import StepLog, read_rows

if TYPE_CHECKING:
    from stages.base.context import Context

START_FILE = "start.json"
REMEDY = "read the log; type the same command again"
NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
"""Pattern of a number in a log."""
Row = dict[str, float]
"""Metrics of a step by grpoflow's names."""
Report = Callable[[float, float, str], None]
"""Function that shows progress: step, total, message."""
ReadStep = Callable[[str], tuple[Row, int] | None]
"""Function of a log's line. It returns the metrics of the step that the line ends, with its number as `step`,
and the number of all steps (0: unknown)."""
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a function that reads a line of another form than the one it knows."""
T = TypeVar("T")
_LINE = 160
"""Characters of a line that are shown."""
_SHOWN = {"reward": "reward", "completion_length": "length", "loss": "loss"}
"""Metrics that are shown as progress, and their labels."""


class Module(Protocol):
    """Functions of a module whose stage is computed by an external program; they raise InputError."""

    __name__: str

    def render(self, config: Mapping[str, Any], inputs: Mapping[str, Path], work: Path) -> Rendered:
        """Return the files and the start of a run that begins; writes nothing. `inputs` need not exist."""

    def prepare(self, context: Context) -> None:
        """Write everything that the program reads into the work directory, and start.json.

        Raises:
            ConfigError: a rule is broken.
            InputError: an input is missing or incomplete.
        """

    def watch(self, config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
        """Return a watcher for the logs in `logs`; it writes metrics to `work`.

        A module whose program reports no steps does not have this function.
        """

    def collect(self, context: Context) -> None:
        """Check that the program finished its work, and import the results into the artifact."""


@dataclass(frozen=True)
class Rendered:
    """Files of a run and how to start its program."""

    start: Start
    files: Mapping[str, str] = field(default_factory=dict)
    """Path below the work directory -> text."""

    def write(self, work: Path) -> None:
        """Write the files."""
        for name, text in self.files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text, encoding="utf-8")


def make_start(
    settings: OutsideProgram,
    program: Iterable[object],
    work: Path,
    env: Mapping[str, str],
    checkouts: Iterable[str | None],
    **more: Any,
) -> Start:
    """Return how to start a program with the interpreter, environment and container of its settings.

    It runs in the subdirectory run/ of `work`. Variables of the settings override `env`; `more` are other
    fields of Start.
    """
    return Start(
        program=tuple(map(str, program)),
        python=settings.python,
        env={**env, **settings.env},
        python_path=tuple(filter(None, checkouts)),
        env_scripts=settings.env_scripts,
        container=settings.container,
        directory=str(work / "run"),
        **more,
    )


def options(named: Mapping[str, object]) -> list[str]:
    """Return arguments of a program: --NAME VALUE."""
    return [text for name, value in named.items() for text in (f"--{name}", str(value))]


def write_start(work: Path, rendered: Rendered, results: Path | None = None, **record: Any) -> None:
    """Write a run's files, and start.json with `record` for `collect`.

    The files that are in `results` now are recorded, so that `is_new` can tell them from results of this run.
    """
    (work / "run").mkdir(parents=True, exist_ok=True)
    rendered.write(work)
    files = results.rglob("*") if results is not None and results.is_dir() else ()
    earlier = {str(file): _state(file) for file in files if file.is_file()}
    content = {"start": dataclasses.asdict(rendered.start), "earlier": earlier, **record}
    (work / START_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_start(work: Path) -> dict[str, Any]:
    """Read start.json; the pipeline has added "logs", the directory of the attempt's logs."""
    content: dict[str, Any] = json.loads((work / START_FILE).read_text(encoding="utf-8"))
    return content


def is_new(file: Path, earlier: Mapping[str, list[int]]) -> bool:
    """Return True if `file` was written after `write_start` recorded `earlier`; clocks do not matter."""
    return file.is_file() and earlier.get(str(file)) != _state(file)


def _state(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def require_line(log: Path, text: str) -> None:
    """Raise InputError if no line of a log, which may have gigabytes, contains `text`."""
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            if any(text in line for line in lines):
                return
    rule = f'ended with exit code 0, but "{text}", the only proof of a finished run, is not in its log'
    raise InputError(log, None, rule, REMEDY)


def dump(values: Mapping[str, Any], added: Mapping[str, Any] | None = None) -> str:
    """Return YAML text in the order of the keys, with `added` keys of the user merged into it.

    A comment at the start names them (stages/engines/upstream_keys.py).
    """
    text: str = yaml.safe_dump(merged(values, added or {}), sort_keys=False, allow_unicode=True)
    return comment(added or {}) + text


def link_or_copy(source: Path, target: Path) -> None:
    """Place a file into the artifact; the checkpoint stays until the artifact is committed."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def import_ranks(files: Sequence[Path], output: Path) -> None:
    """Import trained weights, one file per rank, into the artifact."""
    for rank, source in enumerate(files):
        target = output / "train" / f"rank_{rank}" / source.name
        target.parent.mkdir(parents=True)
        link_or_copy(source, target)


def import_run(context: Context, resumed_from: Any, checkpoint: str, contract: str, **more: Any) -> None:
    """Import metrics, completions and rendered files of a grpo run into the artifact, and write its result.

    It names the checkpoint from which the run resumed (None if it began) and the final one.
    """
    from stages.grpo.trackers.tensorboard import TensorBoard  # imports tensorboardX, which planning need not

    rows = read_rows(context.work / "metrics.jsonl")
    board = TensorBoard(context.output / "tensorboard", "", {})
    for row in rows:
        board.add(row)
    board.close()
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


class Watcher:
    """Follows one log of a run and shows its last line.

    What a program logs never ends its run: malformed lines are counted and left out, and a log that cannot
    be read now is read at the next poll.
    """

    def __init__(self, log: Path, report: Report) -> None:
        self.report, self._log = report, Follower(log)
        self._malformed, self._warned, self._warnings = 0, 0, list[str]()

    def poll(self) -> None:
        """Read new lines; called ten times a second, and when the run has ended."""
        for line in self.lines(self._log):
            self.read(line)

    def lines(self, follower: Follower) -> list[str]:
        """Return the new lines of a log; none, with a warning, while it cannot be read."""
        try:
            return follower.lines()
        except OSError as error:
            warning = f"{follower.path}: can't be read ({error.strerror}); this is tried again until the end"
            if warning not in self._warnings:
                self._warnings.append(warning)
            return []

    def parse(self, reader: Callable[[str], T], line: str) -> T | None:
        """Return reader(line); if the line is malformed, count it and return None."""
        try:
            return reader(line)
        except MALFORMED as error:
            self._malformed += 1
            if self._malformed == 1:
                cause = f"{type(error).__name__}: {error}"[:_LINE]
                text = f"a line is malformed and left out: {line.strip()[:_LINE]!r} ({cause})"
                self._warnings.append(f"{self._log.path}: {text}")
            return None

    def take_warnings(self, ended: bool = False) -> list[str]:
        """Return the warnings since the last call, at the end with the number of malformed lines."""
        warnings = self._warnings[self._warned :]
        self._warned = len(self._warnings)
        if ended and self._malformed > 1:
            warnings.append(f"{self._log.path}: {self._malformed} lines were malformed and left out")
        return warnings

    def read(self, line: str) -> None:
        """Process one line."""
        if line.strip():
            self.report(0, 1, line.strip()[:_LINE])


class StepWatcher(Watcher):
    """Writes the steps of a run to metrics.jsonl, and their completions to completions.jsonl.

    Subclasses for logs that need more than a ReadStep override `read` and call `add`.
    """

    def __init__(
        self,
        log: Path,
        work: Path,
        report: Report,
        read_step: ReadStep | None = None,
        completions: bool = False,
    ) -> None:
        super().__init__(log, report)
        names = ("metrics.jsonl", "completions.jsonl") if completions else ("metrics.jsonl",)
        self._files = [work / name for name in names]
        self._logs: list[StepLog] = []
        self._read_step, self.last = read_step, 0

    def read(self, line: str) -> None:
        """Process one line."""
        if self._read_step is not None and (step := self.parse(self._read_step, line)):
            self.add(*step)

    def add(self, row: Row, total: int, completions: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write a step. It replaces itself and later steps of a killed attempt or before Slurm's requeue."""
        step = int(row["step"])
        if not self._logs or step <= self.last:
            self._logs = [StepLog(file, step - 1) for file in self._files]
        self.last = step
        rows = [{**row, "step": step, "time_s": time.time()}]
        for log, entries in zip(self._logs, (rows, completions), strict=False):
            log.append(entries)
        message = ", ".join(f"{label} {row[name]:.3f}" for name, label in _SHOWN.items() if name in row)
        self.report(step, max(total, step), message)
