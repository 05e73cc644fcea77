"""Why a run failed, from its logs alone: which known failure, in which log, and which worker failed first.

Workers wait for each other, so that one failure fills every log. What counts is the log with a cause; a log
that only tells of waiting (a peer is gone, a collective timed out) points elsewhere. Of several causes the
earliest counts. What is not known is said to be unknown, with the first error that stands there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from launch.diagnose.failures import Failure, fill
from launch.diagnose.symptoms import ORDER, Symptom, look

MOST_LOGS = 2000
ENDINGS = ("*.log", "*.out", "*.err")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[-T ](\d\d:\d\d:\d\d)[.,](\d{1,6})")
_RANK = re.compile(r"(?:worker|rank|node)_?(\d+)")
_WIDTH = 300


@dataclass(frozen=True)
class Finding:
    """One log's best explanation."""

    log: Path
    line: int
    text: str
    """What stands there."""
    time: float
    """When, as far as the log's own time stamps or its last change tell."""
    failure: Failure | None
    """None: an error that the table does not know."""
    cause: str
    remedy: str
    peers: tuple[int, ...]
    """Workers that this one waited for, as far as it names them, in the order of its lines."""
    process: int | None
    """The process that it tells of, where that is another one."""

    @property
    def rank(self) -> int | None:
        """The worker, by the names of msrun's and mindformers' logs."""
        return rank_of(self.log)

    @property
    def kind(self) -> str:
        """cause, follows, end (see launch.diagnose.failures), or unknown."""
        return self.failure.kind if self.failure is not None else "unknown"

    def to_json(self) -> dict[str, Any]:
        """Plain values for programs."""
        return {
            "log": str(self.log),
            "line": self.line,
            "text": self.text,
            "rank": self.rank,
            "failure": self.failure.name if self.failure else None,
            "kind": self.kind,
            "cause": self.cause,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Diagnosis:
    """What the logs of one run say."""

    logs: tuple[Path, ...]
    findings: tuple[Finding, ...]
    """At most one per log, the one that explains most first."""

    @property
    def first(self) -> Finding | None:
        """The best explanation; None: no log holds an error."""
        return next(iter(self.findings), None)

    @property
    def known(self) -> bool:
        """Whether the table knows the cause."""
        return self.first is not None and self.first.failure is not None

    @property
    def culprit(self) -> Path | None:
        """The log to read: of the worker that failed first, as far as that can be told."""
        if self.first is None:
            return None
        if self.first.process is not None:
            owner = next((log for log in self.logs if _is_of(log, self.first.process)), None)
            return owner or self.first.log
        if self.first.kind == "follows":
            absent = self.absent[:1]
            return next((log for log in self.logs if _worker(log) in absent), self.first.log)
        return self.first.log

    @property
    def absent(self) -> tuple[int, ...]:
        """Workers that others waited for: named by them, else those whose own log holds no error.

        Of several the one whose log ended first comes first.
        """
        waiting = [finding for finding in self.findings if finding.kind == "follows"]
        named = dict.fromkeys(peer for finding in waiting for peer in finding.peers)
        if named or not waiting:
            ended = {_worker(log): log.stat().st_mtime for log in self.logs}
            return tuple(sorted(named, key=lambda rank: ended.get(rank, float("inf"))))
        explained = {finding.rank for finding in self.findings}
        ranks = {rank for log in self.logs if (rank := _worker(log)) is not None}
        return tuple(sorted(ranks - explained))

    def lines(self) -> list[str]:
        """For people: the cause, where it stands, what to do."""
        first = self.first
        if first is None:
            return [f"diagnosis: nothing known; none of the {len(self.logs)} logs holds an error"]
        where = f"{first.log}:{first.line}"
        absent = self.absent
        if first.failure is None:
            shown = [f"diagnosis: not known; the first error is {first.text}", f"  at {where}"]
        else:
            shown = [f"diagnosis: {first.cause}", f"  at {where}: {first.text}"]
            shown += [f"  do: {first.remedy}"] if first.remedy else []
        if first.process is not None and self.culprit != first.log:
            shown.append(f"  its log: {self.culprit}")
        elif first.kind == "follows" and absent:
            text = ", ".join(map(str, absent[:8]))
            shown.append(f"  waited for: worker {text}, whose log tells no cause: {self.culprit}")
        others = len(self.findings) - 1
        if others:
            follow = sum(finding.kind == "follows" for finding in self.findings[1:])
            shown.append(f"  {others} more logs hold errors, {follow} of workers that waited (--json)")
        return shown

    def to_json(self) -> dict[str, Any]:
        """Plain values for programs."""
        return {
            "known": self.known,
            "culprit": None if self.culprit is None else str(self.culprit),
            "waited_for": list(self.absent),
            "logs": len(self.logs),
            "findings": [finding.to_json() for finding in self.findings],
        }


def diagnose(place: Path) -> Diagnosis:
    """Read a directory of logs (or one log) and explain.

    Args:
        place: of several attempts below it the newest is read.
    """
    logs = tuple(logs_of(place))
    findings = [_finding(log, symptom) for log in logs if (symptom := look(log)) is not None]
    # msrun copies its workers' last words into its own log: a worker's log goes first
    findings.sort(key=lambda finding: (ORDER[finding.kind], finding.rank is None, finding.time))
    return Diagnosis(logs, tuple(findings))


def logs_of(place: Path) -> list[Path]:
    """The logs below a directory, by name."""
    if place.is_file():
        return [place]
    attempts = [path for path in place.glob("attempt_*") if path.is_dir()]
    newest = max(attempts, key=lambda path: path.stat().st_mtime, default=None)
    logs = {log for ending in ENDINGS for log in (newest or place).rglob(ending) if log.is_file()}
    logs |= {log for ending in ENDINGS for log in place.glob(ending) if log.is_file()}
    return sorted(logs)[:MOST_LOGS]


def rank_of(log: Path) -> int | None:
    """The worker whose log it is, by its own or its directory's name."""
    for name in (log.stem, log.parent.name):
        match = _RANK.fullmatch(name)
        if match:
            return int(match[1])
    return None


def _worker(log: Path) -> int | None:
    return None if log.stem.startswith("node") else rank_of(log)


def _is_of(log: Path, process: int) -> bool:
    """Whether a worker's log is of a process: MindSpore's lines carry its id."""
    if _worker(log) is None:
        return False
    with log.open("rb") as file:
        return re.search(rf"\w\({process}[,:]".encode(), file.read(1 << 16)) is not None


def _finding(log: Path, symptom: Symptom) -> Finding:
    text, match, failure = symptom.text, symptom.match, symptom.failure
    end = text.find("\n", match.end())
    line = text[symptom.begin : end if end >= 0 else len(text)].strip()[:_WIDTH]
    cause, remedy = (fill(failure.cause, match), fill(failure.remedy, match)) if failure else ("", "")
    waits = failure is not None and failure.kind == "follows"
    named = (
        other.groupdict().get("peer") for other in (match.re.finditer(text, match.start()) if waits else ())
    )
    peers = tuple(dict.fromkeys(int(peer) for peer in named if peer))
    pid = match.groupdict().get("pid")
    when = _time(log, text, symptom.begin)
    return Finding(log, symptom.line, line, when, failure, cause, remedy, peers, int(pid) if pid else None)


def _time(log: Path, text: str, begin: int) -> float:
    """When a line was written: by the next stamp after it, or the log's last change where none follows."""
    stamp = next(_stamps(text[begin : begin + (1 << 16)]), None)
    return log.stat().st_mtime if stamp is None else stamp


def _stamps(text: str) -> Iterator[float]:
    for match in _STAMP.finditer(text):
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}.{match[3]:0<6}")
        except ValueError:
            continue
        yield moment.timestamp()
