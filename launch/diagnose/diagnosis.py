"""Diagnosis of a failed run from its logs: the known failure, its log, and the worker that failed first.

Workers wait for each other, so one failure fills every log. A log with a cause counts more than one that only
reports waiting (a lost peer, a collective that timed out); among several causes the earliest counts.
"""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.diagnose.log import PRIORITY, Finding, rank_of, search

MAX_LOGS = 2000
LOG_PATTERNS = ("*.log", "*.out", "*.err")


@dataclass(frozen=True)
class Diagnosis:
    """Explanations found in the logs of one run."""

    logs: tuple[Path, ...]
    findings: tuple[Finding, ...]
    """At most one per log, the best explanation first."""
    unreadable: int
    """Number of other logs, which cannot be read."""

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
            logs = [log for log in self.logs if _worker(log) in self.waited_for[:1]]
        return next(iter(logs), self.first.log)

    @property
    def waited_for(self) -> tuple[int, ...]:
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
            line = f"diagnosis: nothing known; none of the {len(self.logs)} logs holds an error"
            return [line + (f"; {self.unreadable} more cannot be read" if self.unreadable else "")]
        location = f"{first.log}:{first.line}"
        if first.failure is None:
            lines = [f"diagnosis: not known; the first error is {first.text}", f"  at {location}"]
        else:
            lines = [f"diagnosis: {first.cause}", f"  at {location}: {first.text}"]
            lines += [f"  do: {first.remedy}"] if first.remedy else []
        if first.process is not None and self.culprit != first.log:
            lines.append(f"  its log: {self.culprit}")
        elif first.kind == "follows" and self.waited_for:
            workers = ", ".join(map(str, self.waited_for[:8]))
            lines.append(f"  waited for: worker {workers}, whose log tells no cause: {self.culprit}")
        if more := self.findings[1:]:
            waited = sum(finding.kind == "follows" for finding in more)
            lines.append(f"  {len(more)} more logs hold errors, {waited} of workers that waited (--json)")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("line", "text", "rank", "kind", "cause", "remedy")
        findings = [
            {"log": str(finding.log), "failure": finding.failure.name if finding.failure else None}
            | {name: getattr(finding, name) for name in names}
            for finding in self.findings
        ]
        return {
            "known": self.known,
            "culprit": None if self.culprit is None else str(self.culprit),
            "waited_for": list(self.waited_for),
            "logs": len(self.logs),
            "unreadable": self.unreadable,
            "findings": findings,
        }


def diagnose(path: Path) -> Diagnosis:
    """Search a log, or the logs below a directory; of several attempts only the newest."""
    logs, results = logs_of(path), {}
    for log in logs:
        with contextlib.suppress(OSError):
            results[log] = search(log)
    findings = [finding for finding in results.values() if finding is not None]
    # msrun copies the last lines of its workers into its own log, so logs of workers come first
    findings.sort(key=lambda finding: (PRIORITY[finding.kind], finding.rank is None, finding.time))
    return Diagnosis(tuple(results), tuple(findings), len(logs) - len(results))


def logs_of(path: Path) -> list[Path]:
    """Return the logs below a directory, sorted by name."""
    if path.is_file():
        return [path]
    attempts = [attempt for attempt in path.glob("attempt_*") if attempt.is_dir()]
    newest = max(attempts, key=lambda attempt: attempt.stat().st_mtime, default=path)
    logs = {log for pattern in LOG_PATTERNS for log in (*newest.rglob(pattern), *path.glob(pattern))}
    return sorted(log for log in logs if log.is_file())[:MAX_LOGS]


def _worker(log: Path) -> int | None:
    return None if log.stem.startswith("node") else rank_of(log)


def _contains_process(log: Path, process: int) -> bool:
    """Return True for the log of a worker with this process id, which MindSpore writes into its lines."""
    if _worker(log) is None:
        return False
    with log.open("rb") as file:
        return re.search(rf"\w\({process}[,:]".encode(), file.read(1 << 16)) is not None
