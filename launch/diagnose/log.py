"""Search of one log for a known failure, or for an exception that the table does not list."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from launch.diagnose.failures import Failure, failures

HEAD_BYTES, TAIL_BYTES = 32 * 2**10, 192 * 2**10
"""Sizes of the searched parts; the middle of a long log is progress output."""
PRIORITY = {"cause": 0, "unknown": 1, "end": 2, "follows": 3}
"""Kinds of failures; the lowest number explains most."""
_EXCEPTION = re.compile(
    r"^(?!RuntimeError: Distributed job exited|ModuleNotFoundError: No module named 'acl')"
    r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*$",
    re.M,
)
_MAX_LINES_AFTER = 60
"""An exception followed by more lines did not end its process."""
_TRACEBACK = re.compile(r"^.{0,200}?Traceback \(most recent call last\):", re.M)
_MESSAGE_CHARACTERS = 3000
_ENDED = re.compile(r"^grpoflow: ended .*$", re.M)
_INFO = re.compile(r"^\[(?:INFO|DEBUG)\] .*$", re.M)
"""MindSpore's INFO lines mention failed attempts although nothing is wrong."""
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
    """None for an exception that the table does not list."""
    cause: str
    remedy: str
    peers: tuple[int, ...]
    """Workers that this one waited for, as far as its lines name them."""
    process: int | None
    """Id of the process that the line blames, if it is another one."""
    rank: int | None
    """Number of the worker that wrote the log."""
    kind: str
    """Kind of the failure (see Failure.kind), or unknown."""


def search(log: Path) -> Finding | None:
    """Return the known failure that explains most, else an unknown exception, else None."""
    head, skipped_lines, tail = _read(log)
    text = head + tail
    ends = (match.end() for match in _ENDED.finditer(text))
    start = max((end for end in ends if text[end:].strip()), default=0)  # attempts append to the same log
    failure, match = _best_failure(text, start)
    if failure is None or failure.kind != "cause":
        exception = _unknown_exception(text, start)
        failure, match = (None, exception) if exception is not None else (failure, match)
    if match is None:
        return None
    position = match.start() if failure is None else max(match.end() - 1, 0)
    begin = text.rfind("\n", 0, position) + 1
    number = text.count("\n", 0, begin) + 1 + (skipped_lines if begin >= len(head) else 0)
    end = text.find("\n", match.end())
    line = text[begin : end if end >= 0 else len(text)].strip()
    waits = failure is not None and failure.kind == "follows"
    matches = match.re.finditer(text, match.start()) if waits else ()
    peers = dict.fromkeys(int(peer) for follows in matches if (peer := follows.groupdict().get("peer")))
    groups = {name: value or "?" for name, value in match.groupdict().items()}
    return Finding(
        log=log,
        line=number,
        text=line[:_LINE_CHARACTERS],
        time=_time(log, text[begin : begin + (1 << 16)]),
        failure=failure,
        cause=failure.cause.format(**groups) if failure else "",
        remedy=failure.remedy.format(**groups) if failure else "",
        peers=tuple(peers),
        process=int(match["pid"]) if match.groupdict().get("pid") else None,
        rank=rank_of(log),
        kind=failure.kind if failure else "unknown",
    )


def rank_of(log: Path) -> int | None:
    """Return the number of the worker or node from the name of a log or of its directory."""
    matches = (_RANK.fullmatch(name) for name in (log.stem, log.parent.name))
    return next((int(match[1]) for match in matches if match), None)


def _time(log: Path, text: str) -> float:
    """Return the first time stamp in `text`, else the time of the log's last change."""
    for match in _TIMESTAMP.finditer(text):
        try:
            return datetime.fromisoformat(f"{match[1]}T{match[2]}.{match[3]:0<6}").timestamp()
        except ValueError:  # not a date
            continue
    return log.stat().st_mtime


def _best_failure(text: str, start: int) -> tuple[Failure | None, re.Match[str] | None]:
    for failure in sorted(failures(), key=lambda failure: PRIORITY[failure.kind]):
        for match in re.compile(failure.pattern, re.M).finditer(text, start):
            if not _was_caught(text, match):
                return failure, match
    return None, None


def _unknown_exception(text: str, start: int) -> re.Match[str] | None:
    """Return the first uncaught exception, unless its process waited for another one."""
    for traceback in _TRACEBACK.finditer(text, start):
        exception = _EXCEPTION.search(text, traceback.end())
        if exception is not None and not _was_caught(text, exception):
            message = text[traceback.start() : exception.end() + _MESSAGE_CHARACTERS]
            follows = [failure.pattern for failure in failures() if failure.kind == "follows"]
            waited = any(re.search(pattern, message, re.M) for pattern in follows)
            return None if waited else exception
    return None


def _was_caught(text: str, match: re.Match[str]) -> bool:
    """Return True for the line of an exception after which the process continued."""
    begin = text.rfind("\n", 0, match.start()) + 1
    return _EXCEPTION.match(text, begin) is not None and text.count("\n", match.end()) > _MAX_LINES_AFTER


def _read(log: Path) -> tuple[str, int, str]:
    """Read head and tail of a log; return them and, in the middle, the number of lines between."""
    size, skipped = log.stat().st_size, 0
    with log.open("rb") as file:
        if size <= HEAD_BYTES + TAIL_BYTES:
            head, tail = file.read(), b""
        else:
            head = file.read(HEAD_BYTES) + b"\n"
            remaining = size - HEAD_BYTES - TAIL_BYTES
            while remaining > 0 and (block := file.read(min(remaining, 1 << 20))):
                skipped += block.count(b"\n")
                remaining -= len(block)
            tail = file.read().partition(b"\n")[2]  # without the rest of a line
    first, last = (_INFO.sub("", part.decode("utf-8", errors="replace")) for part in (head, tail))
    return first, skipped, last
