"""What explains most of a log: an entry of the table of failures, or the error that none of them knows."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from launch.diagnose.failures import Failure, failures

HEAD_BYTES, TAIL_BYTES = 1 << 18, 2 << 20
"""Of a log that are read: gigabytes of it are progress."""
_RAISED = re.compile(
    r"^(?!RuntimeError: Distributed job exited|ModuleNotFoundError: No module named 'acl')"
    r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*$",
    re.M,
)
_TRACEBACK = re.compile(r"^.{0,200}?Traceback \(most recent call last\):", re.M)
_PART = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\(\?P<\w+>|\(\?<?[:!=]|\(|\)|[?*+]\??|\{[\d,]*\}\??|.", re.S)
_SHORTEST = 3
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_ENDED = re.compile(r"^grpoflow: ended .*$", re.M)
_LAST_LINES = 60
"""An exception that ends a process has fewer lines after it: the rest of its text, and good-byes."""
_TALK = re.compile(r"^\[(?:INFO|DEBUG)\] .*$", re.M)
"""MindSpore's lines that tell of no trouble, though they speak of failed attempts."""
_MESSAGE = 3000
"""Characters of an exception's text."""
ORDER = {"cause": 0, "unknown": 1, "end": 2, "follows": 3}
"""What explains most comes first."""


@dataclass(frozen=True)
class Symptom:
    """Where in a log it stands."""

    failure: Failure | None
    """None: an error that the table does not know."""
    match: re.Match[str]
    text: str
    """The log's beginning and end."""
    skipped: int
    """Lines between them that were not read."""

    @property
    def begin(self) -> int:
        """Where its line begins; of several the last one, which says it."""
        place = self.match.start() if self.failure is None else max(self.match.end() - 1, 0)
        return self.text.rfind("\n", 0, place) + 1

    @property
    def line(self) -> int:
        """The line's number in the log."""
        return self.text.count("\n", 0, self.begin) + 1 + (self.skipped if self.begin > HEAD_BYTES else 0)


@functools.cache
def _patterns() -> tuple[tuple[Failure, re.Pattern[str]], ...]:
    return tuple((failure, re.compile(failure.pattern, re.M)) for failure in failures())


@functools.cache
def _words(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Texts for each alternative of `pattern`, which its matches contain; none where that cannot be told."""
    runs, depth = [[""]], 0
    for part in _PART.findall(pattern):
        depth += part.startswith("(") - (part == ")")
        is_class = len(part) > 1 and (part[0] != "\\" or part[1].isalnum())
        if part == "|" and depth == 0:
            runs.append([""])
        elif part[0] in "?*{":  # what stands before may be absent
            runs[-1][-1] = runs[-1][-1][:-1]
            runs[-1].append("")
        elif depth or is_class or part in "()^$.+":
            runs[-1].append("")
        else:
            runs[-1][-1] += part[-1]
    words = tuple(tuple(word for word in run if len(word) >= _SHORTEST) for run in runs)
    return words if all(words) else ()


@functools.cache
def _is_one_line(pattern: str) -> bool:
    """Whether no match of `pattern` can reach over a line's end."""
    return not any(
        r"\n" not in part if part.startswith("[^") else re.search(r"\\[sDWn]|\n", part)
        for part in _PART.findall(pattern)
    )


def _shapes(text: str) -> bytes:
    """The kinds of lines of a log, each once, digits alike: of megabytes of progress a few remain."""
    return b"\n".join(set(text.encode().translate(_DIGITS).split(b"\n")))


def _begin(pattern: str, text: str, shapes: bytes, begin: int) -> int | None:
    """Where the first match of `pattern` may begin; None: there is none.

    Plain words are found a hundred times faster than patterns.
    """
    possible = []
    for words in (alternatives := _words(pattern)):
        if all(word.encode().translate(_DIGITS) in shapes for word in words):
            places = [text.find(word, begin) for word in words]
            possible += [max(places)] if min(places) >= 0 else []
    if alternatives and not possible:
        return None
    whole = not alternatives or not _is_one_line(pattern)
    return begin if whole else max(begin, text.rfind("\n", 0, min(possible)) + 1)


def look(log: Path) -> Symptom | None:
    """The entry that tells most; an error that none knows; or None."""
    whole, skipped = _read(log)
    talks = "[INFO]" in whole or "[DEBUG]" in whole
    text = _TALK.sub(lambda line: " " * len(line[0]), whole) if talks else whole  # of one length: places stay
    begin = _last_attempt(text)
    best: tuple[Failure, re.Match[str]] | None = None
    shapes = _shapes(text)
    for failure, pattern in _patterns():
        if best is not None and ORDER[best[0].kind] <= ORDER[failure.kind]:
            continue
        first = _begin(failure.pattern, text, shapes, begin)
        if first is None:
            continue
        matches = (match for match in pattern.finditer(text, first) if not _survived(text, match))
        match = next(matches, None)
        if match is not None:
            best = failure, match
    if best is None or best[0].kind != "cause":
        unknown = _unknown(text, begin)
        if unknown is not None:
            return Symptom(None, unknown, whole, skipped)
    return None if best is None else Symptom(best[0], best[1], whole, skipped)


def _last_attempt(text: str) -> int:
    """Where the last attempt's part begins: later ones append to the same log."""
    ends = [match.end() for match in _ENDED.finditer(text)] if "grpoflow: ended" in text else []
    done = [end for end in ends if text[end:].strip()]
    return done[-1] if done else 0


def _survived(text: str, match: re.Match[str]) -> bool:
    """Whether an exception's line is followed by so many others that somebody must have caught it."""
    begin = text.rfind("\n", 0, match.start()) + 1
    return _RAISED.match(text, begin) is not None and text.count("\n", match.end()) > _LAST_LINES


def _unknown(text: str, begin: int) -> re.Match[str] | None:
    """The exception of the first traceback that nobody caught, unless it tells of waiting for others."""
    place = text.find("Traceback (most", begin)
    if place < 0:
        return None
    for traceback in _TRACEBACK.finditer(text, max(begin, text.rfind("\n", 0, place) + 1)):
        raised = _RAISED.search(text, traceback.end())
        if raised is not None and not _survived(text, raised):
            message = text[traceback.start() : raised.end() + _MESSAGE]
            waits = any(
                failure.kind == "follows" and pattern.search(message) for failure, pattern in _patterns()
            )
            return None if waits else raised
    return None


def _read(log: Path) -> tuple[str, int]:
    """A log's beginning and end, and the number of lines between that were left out."""
    with log.open("rb") as file:
        size = log.stat().st_size
        if size <= HEAD_BYTES + TAIL_BYTES:
            return file.read().decode("utf-8", errors="replace"), 0
        head = file.read(HEAD_BYTES)
        skipped, left = 0, size - HEAD_BYTES - TAIL_BYTES
        while left > 0:
            block = file.read(min(left, 1 << 20))
            if not block:
                break
            skipped += block.count(b"\n")
            left -= len(block)
        return (head + b"\n" + file.read()).decode("utf-8", errors="replace"), skipped
