"""History of runs: one JSON line per event in STORE/runs.jsonl.

Lines are only appended, so a crash loses at most the line that was being written. Each is checked before use.
"""

import contextlib
import copy
import errno
import json
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import ConfigError, Problem, StoreError, store_errors
from pipeline.store.leases import is_leased
from stages.base.files import open_regular, read_bytes
from stages.base.redact import redacted
from stages.report.text import duration, number

FILE = "runs.jsonl"
MAX_NAME = 80
"""Characters of a run's name."""
STOPPED = "stopped early"
"""State of a run whose training was stopped at a rung, and the kind of the event that says so."""
CHECKED_BYTES = 256
"""Bytes by which a reader recognises the part of a history that it has parsed."""
MAX_TIME_S = 1e11
"""Upper limit of valid times: Unix time, seconds (the year 5138)."""
STAGE, ARTIFACT, RUN = (re.compile(form) for form in (r"\w+", r"\w+/[0-9a-f]+", r"[\w-]+"))


@dataclass
class Record:
    """A run, reconstructed from its events."""

    id: str
    started: float
    """Unix time, seconds."""
    overrides: list[str]
    config: dict[str, Any]
    """The resolved configuration."""
    artifacts: dict[str, str]
    """Stage -> STAGE/FIRST-16-DIGITS."""
    ended: float | None = None
    state: str = "died"
    """running, finished, failed, interrupted (by a signal), stopped early (by sweep.stop), or died (no end
    was recorded and no process holds its lease)."""
    failed_stage: str | None = None
    """Stage that failed, or that was being built when the run was interrupted or stopped."""
    message: str | None = None
    took_s: float | None = None
    """Seconds that it took, without a sweep point's waiting for other points; None without a recorded end."""
    result: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    pinned: bool = False
    target: str = ""
    """--until STAGE or --only STAGES; empty: the entire graph."""
    force: str = ""
    """Stages of --force, separated by commas."""
    config_dir: str = ""
    """Value of --config-dir; empty without one."""
    sweep: str = ""
    """Id of the sweep that the run is a point of; empty for a run of its own."""
    process: dict[str, Any] = field(default_factory=dict)
    """Host, process id, and start of the process in clock ticks; empty if it needed no lease."""
    expected_s: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds that it was expected to take when the run began; without those that were unknown."""

    def __post_init__(self) -> None:
        self.lease: str = self.id
        """Name of the process's lease: the id of the first run in the process."""

    @property
    def options(self) -> str:
        """Command-line options that selected stages."""
        return " ".join(filter(None, [self.target, self.force and f"--force {self.force}"]))

    @property
    def command(self) -> str:
        """Command line that repeats the run."""
        config_dir = ["--config-dir", self.config_dir] if self.config_dir else []
        return shlex.join(["grpoflow", "run", *config_dir, *self.target.split(), *self.overrides])

    @property
    def outcome(self) -> str:
        """State, with the failed stage if any."""
        return f"{self.state} in {self.failed_stage}" if self.failed_stage else self.state

    @property
    def language(self) -> str:
        """Language of the run's pages: its report.language; en if the record holds none."""
        report = self.config.get("report")
        return "zh" if isinstance(report, dict) and report.get("language") == "zh" else "en"

    @property
    def duration(self) -> str:
        """Human-readable duration; empty if no end was recorded."""
        return "" if self.took_s is None else duration(self.took_s)

    def artifact(self, stage: str) -> str:
        """Return STAGE/FIRST-16-DIGITS of a stage; raise ConfigError if the run does not have it."""
        if stage not in self.artifacts:
            raise ConfigError([Problem("RUN", self.id, f"has no stage {stage}", "see `grpoflow show RUN`")])
        return self.artifacts[stage]

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of the run's configuration; raise ConfigError if the record does not have it."""
        values = self.config.get(name)
        if not isinstance(values, dict):
            rule = f"its record in {FILE} holds no section {name}"
            raise ConfigError([Problem("RUN", self.id, rule, "choose another: grpoflow runs")])
        return values


def _are_texts(values: Iterable[Any], form: re.Pattern[str] | None = None) -> bool:
    return all(isinstance(value, str) and (form is None or form.fullmatch(value)) for value in values)


def is_text(value: Any) -> bool:
    """Return True for text."""
    return isinstance(value, str)


EVENTS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "started": {
        "overrides": lambda value: isinstance(value, list) and _are_texts(value),
        "config": lambda value: isinstance(value, dict),
        "artifacts": lambda value: (
            isinstance(value, dict) and _are_texts(value, STAGE) and _are_texts(value.values(), ARTIFACT)
        ),
    },
    "finished": {"result": lambda value: isinstance(value, dict)},
    "failed": {"stage": is_text, "message": is_text},
    "interrupted": {"stage": is_text, "message": is_text},
    STOPPED: {"stage": is_text, "message": is_text},
    "named": {"name": is_text},
    "pinned": {},
    "unpinned": {},
}
"""Kind of event -> its required values, each with a validity check."""


def is_event(value: Any) -> bool:
    """Return True if a line's JSON is a valid event: of a known kind, with values of the right types."""
    if not isinstance(value, dict) or not _are_texts([value.get("run"), value.get("event")]):
        return False
    when = value.get("time_s")
    is_time = isinstance(when, int | float) and not isinstance(when, bool) and 0 <= when < MAX_TIME_S
    is_id = RUN.fullmatch(value["run"]) is not None  # run ids are used in file names
    checks = EVENTS.get(value["event"])
    if checks is None or not is_time or not is_id:
        return False
    return all(key in value and is_valid(value[key]) for key, is_valid in checks.items())


def read_event(line: str) -> dict[str, Any] | None:
    """Return the event in a line of JSON; None if it is malformed."""
    with contextlib.suppress(ValueError, RecursionError):
        event = json.loads(line)
        if is_event(event):
            return dict(event)
    return None


def new_run_id() -> str:
    """Return YYYYMMDD-HHMMSS-xxxxxxxxxx (UTC): sorts by time; 40 random bits separate equal seconds."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(5).hex()}"


def record(store: Path, run: str, event: str, **values: Any) -> None:
    """Append an event, with secrets redacted, in a single write, so that lines of processes do not mix.

    Raises:
        StoreError: the history cannot be written.
    """
    line = json.dumps({"run": run, "event": event, "time_s": time.time(), **redacted(values)})
    with store_errors(store / FILE):
        descriptor = os.open(store / FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o664)
        try:
            size = os.fstat(descriptor).st_size
            cut_short = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            content = (("\n" if cut_short else "") + line + "\n").encode()
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(store / FILE))
        finally:
            os.close(descriptor)


def check_name(name: str, key: str) -> None:
    """Raise ConfigError if a run must not have this name; empty removes a name. `key` is what sets it."""
    rule = ""
    if name == "last" or "=" in name:
        rule = "may neither be last nor contain ="
    elif len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        rule = f"must have at most {MAX_NAME} printable characters, and none of them blank at its ends"
    if rule:
        raise ConfigError([Problem(key, name, rule, "choose another name")])


def runs(store: Path) -> dict[str, Record]:
    """Return all runs by id, oldest first; truncated and malformed lines are ignored.

    Raises:
        StoreError: the history exists but cannot be read.
    """
    with _lock:
        records = _readers.setdefault(store.absolute(), _Reader()).read(store / FILE)
    unfinished = [run for run in records.values() if run.state == "died"]
    leased = {lease: is_leased(store, lease) for lease in {run.lease for run in unfinished}}
    for run in unfinished:
        run.state = "running" if leased[run.lease] else "died"
    return records


class _Reader:
    """Reader of a history that parses only what was appended since its last call."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._records: dict[str, Record] = {}
        self._position = 0
        """Bytes that were parsed: all complete lines."""
        self._identity: tuple[int, bytes] = (0, b"")
        """Inode, and the last bytes before the position."""

    def read(self, file: Path) -> dict[str, Record]:
        """Return copies of the runs in a history; none if it does not exist."""
        try:
            with open_regular(file) as stream:
                inode = os.fstat(stream.fileno()).st_ino
                if self._identity != (inode, self._before(stream)):  # replaced or edited
                    self._forget()
                stream.seek(self._position)
                complete, newline, rest = stream.read().rpartition(b"\n")
                self._position += len(complete) + len(newline)
                self._identity = inode, self._before(stream)
        except FileNotFoundError:
            self._forget()
            return {}
        except OSError as error:
            raise StoreError.from_os_error(error, file) from error
        _apply_lines(self._records, complete)
        records = {run: copy.copy(record) for run, record in self._records.items()}
        _apply_lines(records, rest)
        return records

    def _before(self, stream: BinaryIO) -> bytes:
        """Return the last bytes before the position."""
        stream.seek(max(0, self._position - CHECKED_BYTES))
        return stream.read(min(CHECKED_BYTES, self._position))


_readers: dict[Path, _Reader] = {}
"""Store -> its reader."""
_lock = threading.Lock()


def read_lines(store: Path) -> list[str]:
    """Return the lines of a store's history; none if there is no history.

    Raises:
        StoreError: the history exists but cannot be read.
    """
    try:
        return read_bytes(store / FILE).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError.from_os_error(error, store / FILE) from error


def parse(lines: Iterable[str]) -> dict[str, Record]:
    """Return runs by id from lines of events; malformed lines are ignored."""
    records: dict[str, Record] = {}
    for event in filter(None, map(read_event, lines)):
        _apply(records, event)
    return records


def _apply_lines(records: dict[str, Record], content: bytes) -> None:
    """Apply the events in lines of a history; malformed lines are ignored."""
    for event in filter(None, map(read_event, content.decode("utf-8", "replace").split("\n"))):
        _apply(records, event)


def filter_events(run: str, lines: Iterable[str]) -> list[str]:
    """Return those lines that are valid events of a run."""
    return [line for line in lines if (event := read_event(line)) is not None and event["run"] == run]


def _apply(records: dict[str, Record], event: dict[str, Any]) -> None:
    kind, run, when = event["event"], event["run"], float(event["time_s"])
    if kind == "started":
        records[run] = Record(run, when, event["overrides"], event["config"], event["artifacts"])
        for option in ("target", "force", "config_dir", "sweep"):
            setattr(records[run], option, event[option] if is_text(event.get(option)) else "")
        process, expected = event.get("process"), event.get("expected_s")
        records[run].process = process if isinstance(process, dict) else {}
        if isinstance(expected, dict):
            seconds = {stage: number(value) for stage, value in expected.items()}
            records[run].expected_s = {stage: value for stage, value in seconds.items() if value is not None}
        lease = event.get("lease", run)
        if isinstance(lease, str) and RUN.fullmatch(lease):  # leases are file names
            records[run].lease = lease
        return
    known = records.get(run)
    if known is None:
        return
    if kind == "finished":
        known.state, known.ended, known.result = "finished", when, event["result"]
        known.took_s = _took_s(event, known)
    elif kind in ("failed", STOPPED) or (kind == "interrupted" and known.state not in ("failed", STOPPED)):
        known.state, known.ended = kind, when
        known.failed_stage, known.message = event["stage"], event["message"]
        known.artifacts = {**known.artifacts, **_made_instead(event)}
        known.took_s = _took_s(event, known)
    elif kind == "named":
        known.name = event["name"] or None
    elif kind in ("pinned", "unpinned"):
        known.pinned = kind == "pinned"


def _made_instead(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the artifacts that a run built instead of planned ones: the report of a gate that failed."""
    made = event.get("artifacts")
    if isinstance(made, dict) and _are_texts(made, STAGE) and _are_texts(made.values(), ARTIFACT):
        return made
    return {}


def _took_s(event: Mapping[str, Any], run: Record) -> float:
    """Return the time that the event of an end states; without one, the time since the start."""
    took_s = number(event.get("took_s"))
    return float(event["time_s"]) - run.started if took_s is None or took_s < 0 else took_s


def differing_overrides(runs: Sequence[Record]) -> dict[str, list[str]]:
    """Return the options and overrides in which runs differ, without store=; all of a single run."""
    words = {run.id: [*filter(None, [run.options]), *run.overrides] for run in runs}
    equal = set.intersection(*map(set, words.values())) if len(words) > 1 else set()
    return {
        run: [word for word in texts if word not in equal and not word.startswith("store=")]
        for run, texts in words.items()
    }


def find(store: Path, selector: str) -> Record:
    """Return a run of a store by id, unique prefix of an id, name, or `last` (see `select`).

    Raises:
        ConfigError: no run or several runs match.
    """
    return select(runs(store), selector, str(store))


def select(known: Mapping[str, Record], selector: str, where: str = "the history") -> Record:
    """Return the run among `known` with this id, unique prefix of an id or name, or the `last` run.

    Raise ConfigError if no run or several runs match.
    """
    if not selector:
        remedy = "give an id, the beginning of one, a name, or last"
        raise ConfigError([Problem("RUN", selector, "is empty", remedy)])
    if selector == "last" and known:
        return list(known.values())[-1]
    matches = [run for run in known.values() if selector in (run.id, run.name)]
    matches = matches or [run for run in known.values() if run.id.startswith(selector)]
    if len(matches) != 1:
        rule = f"matches {len(matches)} runs of {where}, must match one"
        raise ConfigError([Problem("RUN", selector, rule, "see `grpoflow runs`")])
    return matches[0]
