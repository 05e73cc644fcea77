"""Runs: one JSON line per event in STORE/runs.jsonl.

The file is only ever appended to, so a crash loses nothing but the line that it cut short.
"""

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, Problem, StoreError
from pipeline.store import witness
from pipeline.store.leases import is_leased
from pipeline.terminal import elapsed
from stages.base.files import read_bytes

FILE = "runs.jsonl"
END_OF_TIME = 1e11
"""Unix time, seconds (the year 5138); later ones are no times of runs."""


@dataclass
class Record:
    """One run, as its events tell it."""

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
    """running, finished, failed, interrupted (told to stop), or died (no end was recorded and nobody holds
    its lease)."""
    failed_stage: str | None = None
    """Of an interrupted run: what it was building."""
    message: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    pinned: bool = False
    target: str = ""
    """--until STAGE or --only STAGES; empty: the whole graph."""
    force: str = ""
    """Stages that were to be built anew, with commas."""

    @property
    def options(self) -> str:
        """What was typed besides overrides."""
        return " ".join(filter(None, [self.target, self.force and f"--force {self.force}"]))

    @property
    def outcome(self) -> str:
        """Its state, and where it failed."""
        return f"{self.state} in {self.failed_stage}" if self.failed_stage else self.state

    @property
    def took(self) -> str:
        """How long, for people; empty where it has no end."""
        return "" if self.ended is None else elapsed(self.ended - self.started)

    def artifact(self, stage: str) -> str:
        """STAGE/FIRST-16-DIGITS of one of its stages.

        Raises:
            ConfigError: it has no such stage.
        """
        if stage not in self.artifacts:
            raise ConfigError([Problem("RUN", self.id, f"has no stage {stage}", "see `grpoflow show RUN`")])
        return self.artifacts[stage]

    def section(self, name: str) -> dict[str, Any]:
        """One section of its configuration.

        Raises:
            ConfigError: its record does not hold it.
        """
        values = self.config.get(name)
        if not isinstance(values, dict):
            rule = f"its record in {FILE} holds no section {name}"
            raise ConfigError([Problem("RUN", self.id, rule, "choose another: grpoflow runs")])
        return values


def new_run_id() -> str:
    """YYYYMMDD-HHMMSS-xxxx (UTC): sorts by time, unique enough for several people in one second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(2).hex()}"


def record(store: Path, run: str, event: str, **values: Any) -> float:
    """Append one event; a single write of a single line, so that several processes do not mix theirs.

    Returns:
        Its Unix time.

    Raises:
        StoreError: it cannot be written.
    """
    now = time.time()
    line = json.dumps({"run": run, "event": event, "time_s": now, **values})
    try:
        descriptor = os.open(store / FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o664)
        try:
            size = os.fstat(descriptor).st_size
            cut_short = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            content = (("\n" if cut_short else "") + line + "\n").encode()
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(store / FILE))
        finally:
            os.close(descriptor)
        witness.bear(store / FILE)
    except OSError as error:
        raise StoreError.of(error, store / FILE) from error
    return now


def runs(store: Path) -> dict[str, Record]:
    """All runs by id, oldest first; lines that a crash cut short or that are no events are passed over.

    Raises:
        StoreError: the history is there and cannot be read.
    """
    return _with_living(store, parse(_lines(store)))


HEAD = re.compile(r'\{"run": "([\w-]+)", "event": "(\w+)", .*\}')
"""How `record` begins and ends a line."""


def newest(store: Path, count: int) -> tuple[dict[str, Record], int]:
    """The `count` newest runs, oldest first, and how many there are; reads no event of the others.

    Raises:
        StoreError: the history is there and cannot be read.
    """
    lines = _lines(store)
    heads = [HEAD.fullmatch(line) for line in lines]
    begun = dict.fromkeys(head[1] for head in heads if head and head[2] == "started")
    wanted = set(list(begun)[-count:])
    records = parse(
        line for line, head in zip(lines, heads, strict=True) if head is None or head[1] in wanted
    )
    if not wanted <= records.keys() or len(records) > len(wanted):  # lines that somebody else has written
        records = parse(lines)
        return _with_living(store, dict(list(records.items())[-count:])), len(records)
    return _with_living(store, records), len(begun)


def _with_living(store: Path, records: dict[str, Record]) -> dict[str, Record]:
    for run in records.values():
        if run.state == "died" and is_leased(store, run.id):
            run.state = "running"
    return records


def _lines(store: Path) -> list[str]:
    try:
        return read_bytes(store / FILE).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError.of(error, store / FILE) from error


def parse(lines: Iterable[str]) -> dict[str, Record]:
    """Runs by id out of lines of events; what is none is passed over."""
    records: dict[str, Record] = {}
    for event in map(_event, lines):
        if event is not None:
            _apply(records, event)
    return records


def events_of(store: Path, run: str) -> list[str]:
    """The lines of one run.

    Raises:
        StoreError: the history is there and cannot be read.
    """
    return told_of(run, _lines(store))


def told_of(run: str, lines: Iterable[str]) -> list[str]:
    """Those lines that are events of one run."""
    return [line for line in lines if (event := _event(line)) is not None and event["run"] == run]


def _event(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, RecursionError):
        event = json.loads(line)
        if is_event(event):
            return dict(event)
    return None


STAGE, ARTIFACT, RUN = (re.compile(form) for form in (r"\w+", r"\w+/[0-9a-f]+", r"[\w-]+"))


def _texts(values: Iterable[Any], form: re.Pattern[str] | None = None) -> bool:
    return all(isinstance(value, str) and (form is None or form.fullmatch(value)) for value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


EVENTS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "started": {
        "overrides": lambda value: isinstance(value, list) and _texts(value),
        "config": lambda value: isinstance(value, dict),
        "artifacts": lambda value: (
            isinstance(value, dict) and _texts(value, STAGE) and _texts(value.values(), ARTIFACT)
        ),
    },
    "finished": {"result": lambda value: isinstance(value, dict)},
    "failed": {"stage": _is_text, "message": _is_text},
    "interrupted": {"stage": _is_text, "message": _is_text},
    "named": {"name": _is_text},
    "pinned": {},
    "unpinned": {},
}
"""Kind of event -> what it carries, and whether a value can be that."""


def is_event(value: Any) -> bool:
    """Whether a line's JSON is an event of a run, so that whatever reads runs may rely on its types."""
    if not isinstance(value, dict) or not _texts([value.get("run"), value.get("event")]):
        return False
    when = value.get("time_s")
    is_time = isinstance(when, int | float) and not isinstance(when, bool) and 0 <= when < END_OF_TIME
    is_name = RUN.fullmatch(value["run"]) is not None  # it names a file, too
    carried = EVENTS.get(value["event"])
    if carried is None or not is_time or not is_name:
        return False
    return all(key in value and fits(value[key]) for key, fits in carried.items())


def _apply(records: dict[str, Record], event: dict[str, Any]) -> None:
    kind, run, when = event["event"], event["run"], float(event["time_s"])
    if kind == "started":
        records[run] = Record(run, when, event["overrides"], event["config"], event["artifacts"])
        for option in ("target", "force"):
            setattr(records[run], option, event[option] if _is_text(event.get(option)) else "")
        return
    known = records.get(run)
    if known is None:
        return
    if kind == "finished":
        known.state, known.ended, known.result = "finished", when, event["result"]
    elif kind == "failed" or (kind == "interrupted" and known.state != "failed"):
        known.state, known.ended = kind, when
        known.failed_stage, known.message = event["stage"], event["message"]
    elif kind == "named":
        known.name = event["name"]
    elif kind in ("pinned", "unpinned"):
        known.pinned = kind == "pinned"


def doubt(store: Path, known: Mapping[str, Record]) -> str | None:
    """Why the history must not decide what can go, or None.

    Args:
        store: the store.
        known: its runs, as `runs` read them.

    Raises:
        StoreError: it cannot be read.
    """
    file = store / FILE
    try:
        if not witness.holds(file):
            return (
                f"{file}: lines are missing that were there once; put it back from a copy, or remove "
                f"{store / witness.FILE} to go on with what it holds now"
            )
        leases = sorted((store / ".leases").glob("*.lock"))
    except OSError as error:
        raise StoreError.of(error, file) from error
    if not known:
        return f"{file}: no run is recorded there, so that nothing tells what is needed"
    strangers = [lock.stem for lock in leases if lock.stem not in known and is_leased(store, lock.stem)]
    return f"{file}: does not know run {strangers[0]}, which lives" if strangers else None


def find(store: Path, wanted: str) -> Record:
    """A run by id, unique beginning of an id, name, or `last`.

    Raises:
        ConfigError: none or several fit.
    """
    return chosen(runs(store), wanted, str(store))


def chosen(known: Mapping[str, Record], wanted: str, where: str = "them") -> Record:
    """The same of runs that are known, which `where` names.

    Raises:
        ConfigError: none or several fit.
    """
    if wanted == "last" and known:
        return list(known.values())[-1]
    fitting = [run for run in known.values() if wanted in (run.id, run.name)]
    fitting = fitting or [run for run in known.values() if run.id.startswith(wanted)]
    if len(fitting) != 1:
        rule = f"fits {len(fitting)} runs of {where}, must fit one"
        raise ConfigError([Problem("RUN", wanted, rule, "see `grpoflow runs`")])
    return fitting[0]
