"""Diagnosis of a failed run from its logs: the known failure, its log, and the worker that failed first.

Workers wait for each other, so one failure fills every log. A log with a cause counts more than one that only
reports waiting (a lost peer, a collective that timed out); among several causes the earliest counts.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from launch.diagnose.failures import Failure, fill
from launch.diagnose.log import PRIORITY, Symptom, search

MAX_LOGS = 2000
LOG_PATTERNS = ("*.log", "*.out", "*.err")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[-T ](\d\d:\d\d:\d\d)[.,](\d{1,6})")
_RANK = re.compile(r"(?:worker|rank|node)_?(\d+)")
_LINE_CHARACTERS = 300


@dataclass(frozen=True)
class Finding:
    """The best explanation in one log."""

    log: Path
    line: int
    text: str
    """The line itself."""
    time: float
    """Unix time of the line by the log's time stamps, else of the log's last change."""
    failure: Failure | None
    """None for an error that the table does not list."""
    cause: str
    remedy: str
    peers: tuple[int, ...]
    """Workers that this one waited for, as far as its lines name them."""
    process: int | None
    """Id of the process that the line blames, if it is another one."""

    @property
    def rank(self) -> int | None:
        """Number of the worker that wrote the log."""
        return rank_of(self.log)

    @property
    def kind(self) -> str:
        """Kind of the failure (see Failure.kind), or unknown."""
        return self.failure.kind if self.failure is not None else "unknown"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
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
    """Explanations found in the logs of one run."""

    logs: tuple[Path, ...]
    findings: tuple[Finding, ...]
    """At most one per log, the best explanation first."""

    @property
    def first(self) -> Finding | None:
        """The best explanation; None if no log contains an error."""
        return next(iter(self.findings), None)

    @property
    def known(self) -> bool:
        """True if the table lists the cause."""
        return self.first is not None and self.first.failure is not None

    @property
    def culprit(self) -> Path | None:
        """The log of the worker that failed first, as far as known."""
        if self.first is None:
            return None
        logs = []
        if self.first.process is not None:
            logs = [log for log in self.logs if _contains_process(log, self.first.process)]
        elif self.first.kind == "follows":
            logs = [log for log in self.logs if _worker(log) in self.absent[:1]]
        return next(iter(logs), self.first.log)

    @property
    def absent(self) -> tuple[int, ...]:
        """Workers that others waited for, the one whose log ended first in front.

        If no log names them, the workers without an error in their own log.
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
        """Return the cause, its location and the remedy as lines for people."""
        first = self.first
        if first is None:
            return [f"diagnosis: nothing known; none of the {len(self.logs)} logs holds an error"]
        location = f"{first.log}:{first.line}"
        if first.failure is None:
            lines = [f"diagnosis: not known; the first error is {first.text}", f"  at {location}"]
        else:
            lines = [f"diagnosis: {first.cause}", f"  at {location}: {first.text}"]
            lines += [f"  do: {first.remedy}"] if first.remedy else []
        if first.process is not None and self.culprit != first.log:
            lines.append(f"  its log: {self.culprit}")
        elif first.kind == "follows" and self.absent:
            workers = ", ".join(map(str, self.absent[:8]))
            lines.append(f"  waited for: worker {workers}, whose log tells no cause: {self.culprit}")
        more = self.findings[1:]
        if more:
            waited = sum(finding.kind == "follows" for finding in more)
            lines.append(f"  {len(more)} more logs hold errors, {waited} of workers that waited (--json)")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "known": self.known,
            "culprit": None if self.culprit is None else str(self.culprit),
            "waited_for": list(self.absent),
            "logs": len(self.logs),
            "findings": [finding.to_json() for finding in self.findings],
        }


def diagnose(path: Path) -> Diagnosis:
    """Search a log, or the logs below a directory; of several attempts only the newest."""
    logs = tuple(logs_of(path))
    findings = [_finding(log, symptom) for log in logs if (symptom := search(log)) is not None]
    # msrun copies the last lines of its workers into its own log, so logs of workers come first
    findings.sort(key=lambda finding: (PRIORITY[finding.kind], finding.rank is None, finding.time))
    return Diagnosis(logs, tuple(findings))


def logs_of(path: Path) -> list[Path]:
    """Return the logs below a directory, sorted by name."""
    if path.is_file():
        return [path]
    attempts = [attempt for attempt in path.glob("attempt_*") if attempt.is_dir()]
    newest = max(attempts, key=lambda attempt: attempt.stat().st_mtime, default=path)
    logs = {log for pattern in LOG_PATTERNS for log in (*newest.rglob(pattern), *path.glob(pattern))}
    return sorted(log for log in logs if log.is_file())[:MAX_LOGS]


def rank_of(log: Path) -> int | None:
    """Return the number of the worker or node from the name of a log or of its directory."""
    matches = (_RANK.fullmatch(name) for name in (log.stem, log.parent.name))
    return next((int(match[1]) for match in matches if match), None)


def _worker(log: Path) -> int | None:
    return None if log.stem.startswith("node") else rank_of(log)


def _contains_process(log: Path, process: int) -> bool:
    """Return True for the log of a worker with this process id, which MindSpore writes into its lines."""
    if _worker(log) is None:
        return False
    with log.open("rb") as file:
        return re.search(rf"\w\({process}[,:]".encode(), file.read(1 << 16)) is not None


def _finding(log: Path, symptom: Symptom) -> Finding:
    text, match, failure = symptom.text, symptom.match, symptom.failure
    end = text.find("\n", match.end())
    line = text[symptom.begin : end if end >= 0 else len(text)].strip()[:_LINE_CHARACTERS]
    cause, remedy = (fill(failure.cause, match), fill(failure.remedy, match)) if failure else ("", "")
    waits = failure is not None and failure.kind == "follows"
    matches = match.re.finditer(text, match.start()) if waits else ()
    peers = dict.fromkeys(int(peer) for follows in matches if (peer := follows.groupdict().get("peer")))
    process = match.groupdict().get("pid")
    time = _time(log, text[symptom.begin : symptom.begin + (1 << 16)])
    return Finding(
        log, symptom.line, line, time, failure, cause, remedy, tuple(peers), int(process) if process else None
    )


def _time(log: Path, text: str) -> float:
    """Return the first time stamp in `text`, else the time of the log's last change."""
    for match in _TIMESTAMP.finditer(text):
        try:
            return datetime.fromisoformat(f"{match[1]}T{match[2]}.{match[3]:0<6}").timestamp()
        except ValueError:  # not a date
            continue
    return log.stat().st_mtime
