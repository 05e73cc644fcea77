"""`grpoflow logs` and `diagnose`: output of a stage, and the cause of a failure from logs alone."""

import codecs
import contextlib
import sys
import time
from argparse import Namespace
from pathlib import Path

from launch.diagnose.diagnosis import diagnose as diagnosis_of
from pipeline.cli.command import Commands, add_json, add_run, bounded, store_of
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.run import detached
from pipeline.store import history
from pipeline.store.attempt import find_log, last_written, newest_attempt, worker_logs
from pipeline.store.history import Record
from pipeline.terminal import as_json, say
from pipeline.ui.watch import choose
from stages.catalog import STAGES

POLL_S = 0.3
MAX_BYTES = 1 << 26


def register(commands: Commands) -> None:
    """Add `logs` and `diagnose`."""
    parser = commands.add(
        "logs",
        logs,
        "print the log of a run's failed or latest stage",
        "-f",
        "last grpo --worker 3",
    )
    add_run(parser, "the newest live run, else the newest")
    parser.add_argument("stage", metavar="STAGE", nargs="?", help="a stage of the run")
    parser.add_argument(
        "--worker",
        type=bounded(0),
        metavar="N",
        help="number of the worker (default: 0 if there are any)",
    )
    parser.add_argument(
        "--run", dest="of_run", action="store_true", help="what a detached run itself printed"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")

    parser = commands.add(
        "diagnose",
        diagnose,
        "show the cause of a failure and its remedy from logs alone (exit 1: cause unknown)",
        "store/.logs/grpo-0123456789abcdef",
        "output/msrun_log --json",
        overrides=False,
    )
    parser.add_argument(
        "logs", type=Path, metavar="LOG_DIR", help="directory of msrun or grpoflow logs, or a single log file"
    )
    add_json(parser)


def logs(options: Namespace) -> int:
    """Print a log; with --follow, until the run ends."""
    if options.run in STAGES and options.stage is None:
        options.run, options.stage = None, options.run
    root = store_of(options).root
    if options.of_run:
        return _output(options, root)
    record, printer = choose(root, options.run), Printer()
    if options.stage is not None:
        record.artifact(options.stage)
    while options.follow and record.state == "running":
        with contextlib.suppress(ConfigError, StoreError):  # the stage has not begun yet
            printer.show(find(root, record, options.stage, options.worker))
        time.sleep(POLL_S)
        record = history.find(root, record.id)
    printer.show(find(root, record, options.stage, options.worker))
    return Exit.DONE


def _output(options: Namespace, root: Path) -> int:
    """Print what a detached run or sweep itself printed; with --follow, until it ends."""
    runs, printer = detached.find(root, options.run or "last"), Printer()
    file = detached.log_file(root, runs[0].sweep or runs[0].id)
    if not file.is_file():
        raise StoreError(f"{file}: not there: run {runs[0].id} was not started with --detach")
    printer.show(file)
    while options.follow and history.runs(root)[runs[0].id].state == "running":
        time.sleep(POLL_S)
        printer.show(file)
    printer.show(file)
    return Exit.DONE


def find(root: Path, record: Record, stage: str | None, worker: int | None) -> Path:
    """Return the log of a stage and worker (None: the defaults); raise an error if there is none."""
    name = stage or _last_stage(root, record)
    artifact = record.artifact(name)
    directory = newest_attempt(root, artifact)
    workers = {} if directory is None else worker_logs(directory)
    file = find_log(root, artifact) if worker is None else workers.get(worker)
    if file is not None:
        return file
    what = f"no log of {name}" + (f", worker {worker}" if worker is not None else "")
    numbers = f"; workers that have one: {', '.join(map(str, sorted(workers)))}" if workers else ""
    raise StoreError(f"{directory or root / '.logs'}: {what}, in run {record.id}{numbers}")


class Printer:
    """Printer of the new part of a log."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._end = 0
        # a character may arrive in two parts
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, file: Path) -> None:
        """Print the new part of a log; a log that differs from the last one is printed from its start."""
        size = file.stat().st_size
        if file != self._file or size < self._end:
            self._file, self._end = file, max(0, size - MAX_BYTES)
            self._decoder.reset()
            say(f"==> {file}", stderr=True)
        with file.open("rb") as stream:
            stream.seek(self._end)
            new = stream.read(size - self._end)
        self._end = size
        sys.stdout.write(self._decoder.decode(new))
        sys.stdout.flush()


def _last_stage(root: Path, record: Record) -> str:
    """Return the stage that failed, else the one that wrote last."""
    newest = {name: newest_attempt(root, artifact) for name, artifact in record.artifacts.items()}
    written = {name: last_written(directory) for name, directory in newest.items() if directory is not None}
    if record.failed_stage in written:
        return str(record.failed_stage)
    if not written:
        hint = "all its stages were in the store already, or none has begun"
        raise ConfigError([Problem("RUN", record.id, f"has no logs: {hint}", "see `grpoflow runs`")])
    return max(written, key=lambda name: written[name])


def diagnose(options: Namespace) -> int:
    """Show the cause; exit 1 if it is unknown."""
    diagnosis = diagnosis_of(options.logs)
    if not diagnosis.logs and not diagnosis.unreadable:
        remedy = "give the directory of worker_K.log, or a log itself"
        raise ConfigError([Problem("LOG_DIR", options.logs, "holds no *.log, *.out or *.err", remedy)])
    if options.json:
        print(as_json(diagnosis.to_json()))
    else:
        say("\n".join(diagnosis.lines()))
    return Exit.DONE if diagnosis.known else Exit.FAILED
