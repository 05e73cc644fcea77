"""Cases: a valid file, changed in a way that a number decides, then read. It is right, or refused by name."""

from __future__ import annotations

import contextlib
import io
import re
import resource
import shutil
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pipeline.errors import REPORTED
from tests.fuzz.formats import FORMATS, changeable
from tests.fuzz.mutations import put

LONGEST_S = 20.0
"""Processor time that a case may take, and a fifth of the time by the clock, in which others compute, too."""
MOST_BYTES = 1 << 30
"""More memory than a case may take, of files of kilobytes."""
KEY = re.compile(r"^[a-z_]+(\.[a-z_]+)+")


class HangError(BaseException):
    """A case takes too long; nothing on the way may catch it as an ordinary error."""


@dataclass(frozen=True)
class Find:
    """A case that ended as none may."""

    format: str
    number: int
    done: str
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.format} {self.number} ({self.done}): {self.what}\n{self.where}"


def case(name: str, number: int, root: Path) -> Find | None:
    """Run one case in `root`, which is emptied; what is wrong with its end, or None."""
    form, source = FORMATS[name], Random(f"{name} {number}")
    place = made(name, root)
    chosen = source.choice(list(changeable(place, form.files)))
    done = f"{chosen.relative_to(place)}: {put(chosen, form.kinds, source)}"
    return judged(name, place, number, done)


def made(name: str, root: Path) -> Path:
    """A directory with valid files of a format."""
    place = root / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    FORMATS[name].make(place)
    return place


def judged(name: str, place: Path, number: int, done: str) -> Find | None:
    """What is wrong with how reading ends, after `done` was done to the files."""
    try:
        with limits(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            FORMATS[name].read(place)
    except REPORTED as error:
        if str(place) in str(error) or KEY.match(str(error)):
            return None
        return Find(name, number, done, f"an error that names no place: {error}", "")
    except (Exception, HangError) as error:
        told = "".join(traceback.format_exception(error)[-6:])
        return Find(name, number, done, f"{type(error).__name__}: {error}"[:300], told)
    return None


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Bounds of time and memory of this process."""

    def late(*_: Any) -> None:
        raise HangError(f"longer than {LONGEST_S} s of processor time, or {5 * LONGEST_S} s in all")

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    timers = {
        signal.SIGALRM: (signal.ITIMER_REAL, 5 * LONGEST_S),
        signal.SIGPROF: (signal.ITIMER_PROF, LONGEST_S),
    }
    previous = {number: signal.signal(number, late) for number in timers}
    for timer, most in timers.values():
        signal.setitimer(timer, most)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, before[1]))
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, previous[number])
        resource.setrlimit(resource.RLIMIT_AS, before)
