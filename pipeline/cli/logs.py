"""`grpoflow logs`: what a stage's processes have written, of a run that lives or has ended."""

import re
import signal
import sys
import time
from argparse import Namespace
from pathlib import Path

from pipeline.cli.command import Commands, add_run, store_of
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.plan.graph import VERSIONS
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.ui.watch import choose
from stages.report.text import neutral

EVERY_S = 0.3
LAST_BYTES = 1 << 26


def register(commands: Commands) -> None:
    """Add `logs`."""
    parser = commands.add(
        "logs",
        logs,
        "print the log of a stage of a run: of what failed, of what runs, else of the last one",
        "-f",
        "last grpo --worker 3",
        "grpo -n 50",
    )
    add_run(parser, "the newest living one, else the newest")
    parser.add_argument("stage", metavar="STAGE", nargs="?", help="a stage of the run")
    parser.add_argument(
        "--worker", type=int, metavar="N", help="this worker's (default: 0, where there are any)"
    )
    parser.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as it grows, until the run ends")


def logs(options: Namespace) -> int:
    """Print a log; with --follow, until the run ends."""
    if "=" in (options.stage or ""):
        options.overrides, options.stage = [options.stage, *options.overrides], None
    if options.run in VERSIONS and options.stage is None:
        options.run, options.stage = None, options.run
    root = store_of(options).root
    record = choose(root, options.run)
    shown = Shown()
    try:
        file = find(root, record, options.stage, options.worker)
        shown.show(file, options.lines)
        while options.follow and record.state == "running":
            time.sleep(EVERY_S)
            record = history.find(root, record.id)
            shown.show(find(root, record, options.stage, options.worker))
    except KeyboardInterrupt:  # of the watching, not of the run
        return 128 + signal.SIGINT
    return Exit.DONE


def find(root: Path, record: Record, stage: str | None, worker: int | None) -> Path:
    """The log that is asked for.

    Raises:
        ConfigError: the run has no such stage.
        StoreError: there is no such log.
    """
    places = {
        name: _newest(root / ".logs", record.artifact(name).replace("/", "-")) for name in record.artifacts
    }
    wanted = stage or _stage(record, places)
    directory = _newest(root / ".logs", record.artifact(wanted).replace("/", "-"))
    workers = {} if directory is None else _workers(directory)
    if worker is None and directory is not None:
        plain = directory / "stage.log"
        file = workers.get(0, plain)
        if file.is_file() and file.stat().st_size:
            return file
        if plain.is_file():
            return plain
    elif worker in workers:
        return workers[worker]
    what = f"no log of {wanted}" + (f", worker {worker}" if worker is not None else "")
    numbers = f"; workers that have one: {', '.join(map(str, sorted(workers)))}" if workers else ""
    raise StoreError(f"{directory or root / '.logs'}: {what}, in run {record.id}{numbers}")


class Shown:
    """What has been printed already."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._end = 0

    def show(self, file: Path, lines: int | None = None) -> None:
        """Print what is new in a log; another log than before is named on stderr and begun anew."""
        size = file.stat().st_size
        if file != self._file or size < self._end:
            self._file, self._end = file, max(0, size - LAST_BYTES)
            print(f"==> {file}", file=sys.stderr, flush=True)
        with file.open("rb") as stream:
            stream.seek(self._end)
            new = stream.read(size - self._end)
        self._end = size
        text = new.decode("utf-8", "replace")
        if lines is not None:
            text = "".join(text.splitlines(keepends=True)[-lines:] if lines > 0 else [])
        sys.stdout.write(neutral(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


def _stage(record: Record, places: dict[str, Path | None]) -> str:
    """The stage that failed; else the one that has written last."""
    if record.failed_stage in places and places[record.failed_stage] is not None:
        return str(record.failed_stage)
    written = {name: _time(place) for name, place in places.items() if place is not None}
    if not written:
        hint = "all its stages were in the store already, or none has begun"
        raise ConfigError([Problem("RUN", record.id, f"has no logs: {hint}", "see `grpoflow runs`")])
    return max(written, key=lambda name: written[name])


def _newest(logs: Path, flat: str) -> Path | None:
    """The logs of the attempt at an artifact that has written last."""
    seats = [place for place in logs.glob(f"{flat}*") if re.fullmatch(r"(\+\d+)?", place.name[len(flat) :])]
    return max((place for place in seats if place.is_dir()), key=_time, default=None)


def _workers(directory: Path) -> dict[int, Path]:
    """Number -> its log; of several attempts' the last one's."""
    found: dict[int, Path] = {}
    files = (file for file in directory.rglob("worker_*.log") if file.stem[7:].isdecimal() and file.is_file())
    for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
        found[int(file.stem[7:])] = file
    return found


def _time(directory: Path) -> int:
    return max((file.stat().st_mtime_ns for file in directory.rglob("*.log")), default=0)
