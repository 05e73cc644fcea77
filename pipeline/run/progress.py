"""Progress of a run on stderr: a status line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.filesize import decimal

from pipeline.terminal import say, show_status, terminal_width
from stages.base.files import open_regular, parse_json
from stages.report.language import translate
from stages.report.text import duration, number

PLAIN_EVERY_S = 15.0
RECENT_STEPS = 20
"""Number of latest steps from which pace and remaining time are estimated."""


@dataclass(frozen=True)
class Remaining:
    """Expected time until a run ends."""

    seconds: float
    is_complete: bool
    """False if it lacks stages whose duration is not known."""

    def __str__(self) -> str:
        text = "{time} left" if self.is_complete else "at least {time} left"
        return translate(text, time=duration(self.seconds))


def remaining(
    expected_s: Mapping[str, float], running: Mapping[str, float | None], waiting: Iterable[str]
) -> Remaining | None:
    """Return the time left of a run whose stages follow each other; None if nothing is known.

    Args:
        expected_s: stage -> expected duration, where known.
        running: stage -> time left according to its own progress; None if that says nothing yet.
        waiting: stages that have not begun.
    """
    parts = [*running.values(), *(expected_s.get(stage) for stage in waiting)]
    known = [seconds for seconds in parts if seconds is not None]
    return Remaining(sum(known), len(known) == len(parts)) if known else None


def left_of_stage(
    line: Mapping[str, Any], pace_s: float | None, expected_s: float | None, elapsed_s: float
) -> float | None:
    """Return the seconds left of a stage by its progress line and pace, else by its expected duration."""
    step, total, when = (number(line.get(key)) for key in ("step", "total", "time_s"))
    if pace_s is not None and step is not None and total is not None and when is not None:
        return max(0.0, (total - step) * pace_s - (time.time() - when))
    return None if expected_s is None else max(0.0, expected_s - elapsed_s)


class Display:
    """Display of the stages of one run."""

    def __init__(self, label: str = "") -> None:
        """Create a display; `label` begins each line if several runs share the terminal."""
        self.label = label
        self._started: dict[str, float] = {}
        self._last_plain = 0.0
        # Luigi forks if it has several workers; a status line belongs to one run in one process
        self._process = None if label or not sys.stderr.isatty() else os.getpid()
        self._expected_s: Mapping[str, float] = {}
        self._missing: Callable[[], Sequence[str]] | None = None
        self._waiting: dict[str, list[str]] = {}
        """Stage -> other stages that were missing when it began."""
        self._points: dict[str, list[tuple[float, float]]] = {}
        """Stage -> its latest steps with their times."""

    def expect(self, expected_s: Mapping[str, float], missing: Callable[[], Sequence[str]]) -> None:
        """Show the time left of the run: the expected durations, and a function that names missing stages."""
        self._expected_s, self._missing = expected_s, missing

    def wait(self, stage: str) -> None:
        """Report that another process builds the stage's artifact."""
        self.print_line(f"{stage}: waiting for another process that builds it")

    def start(self, stage: str) -> None:
        """Report that a stage has started."""
        self._started[stage] = time.monotonic()
        self._points[stage] = []
        if self._missing is not None:
            self._waiting[stage] = [name for name in self._missing() if name != stage]
        self.print_line(f"{stage}: started")

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """Show the stage's latest progress line, if any, with its rate and the time left of the run."""
        if line is None:
            return
        points = self._points.setdefault(stage, [])
        step, when = number(line.get("step")), number(line.get("time_s"))
        if step is not None and (not points or points[-1][0] != step):
            points.append((step, time.time() if when is None else when))
            del points[: -RECENT_STEPS - 1]
        is_status = self._process == os.getpid()
        if not is_status and time.monotonic() - self._last_plain < PLAIN_EVERY_S:
            return
        parts = [f"{stage}: {count(line)}", *self._paces(stage, line, points)]
        parts += filter(None, [str(line.get("message", ""))])
        if is_status:
            room = (terminal_width(sys.stderr) or 80) - 1
            while len(parts) > 1 and cell_len(", ".join(parts)) > room:
                parts.pop()
            show_status(", ".join(parts))
        else:
            self._last_plain = time.monotonic()
            self.print_line(", ".join(parts))

    def _paces(self, stage: str, line: Mapping[str, Any], points: Sequence[tuple[float, float]]) -> list[str]:
        """Return the stage's rate and the time left of the run, as far as they are known."""
        from pipeline.plan.explain import median_pace  # imported late: a run with nothing to do needs no pace

        pace_s, texts = median_pace(points), []
        if pace_s:
            unit = str(line.get("unit") or "part")
            each = f"{duration(pace_s)} per {unit.removesuffix('s')}"
            texts.append(f"{decimal(int(1 / pace_s))}/s" if unit == "B" else each)
        if self._missing is not None:
            left_s = left_of_stage(line, pace_s, self._expected_s.get(stage), self.elapsed_s(stage) or 0.0)
            left = remaining(self._expected_s, {stage: left_s}, self._waiting.get(stage, ()))
            texts += [] if left is None else [f"run: {left}"]
        return texts

    def warn(self, stage: str, text: str) -> None:
        """Print a warning of the stage."""
        self.print_line(f"{stage}: warning: {text}")

    def finish(self, stage: str, state: str) -> None:
        """Report the end of a stage: done, cached (another process built it), pulled or failed."""
        elapsed_s = self.elapsed_s(stage)
        after = "" if elapsed_s is None else f" after {elapsed_s:.1f} s"
        self.print_line(f"{stage}: {state}{after}")

    def elapsed_s(self, stage: str) -> float | None:
        """Return the seconds since a stage was started in this process; None if it was not."""
        started = self._started.get(stage)
        return None if started is None else time.monotonic() - started

    def print_line(self, text: str) -> None:
        """Print a line, prefixed with the run's label, in place of the status line."""
        if self._process == os.getpid():
            show_status("")
        say(self.label + text, stderr=True)


def tail(file: Path, most_bytes: int = 1 << 16) -> list[dict[str, Any]]:
    """Return the objects in the last complete lines of a JSON Lines file; [] if it does not exist."""
    try:
        with open_regular(file) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - most_bytes))
            lines = stream.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    objects = []
    for line in lines:
        with contextlib.suppress(ValueError):  # the first may be cut
            value = parse_json(line)
            objects += [value] if isinstance(value, dict) else []
    return objects


def count(line: Mapping[str, Any]) -> str:
    """Format progress: 3/80 step, or 12 MB of 1.2 GB."""
    if line.get("unit") == "B":
        return f"{decimal(int(line.get('step', 0)))} of {decimal(int(line.get('total', 0)))}"
    unit = f" {line['unit']}" if line.get("unit") else ""
    total = f"/{line['total']:g}" if "total" in line else ""
    return f"{line.get('step', 0):g}{total}{unit}"
