"""Progress of a run on stderr: a status line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from pipeline.terminal import console, show_status
from stages.base.files import open_regular, parse_json

PLAIN_EVERY_S = 15.0


class Display:
    """Display of the stages of one run."""

    def __init__(self, label: str = "") -> None:
        """Create a display; `label` begins each line if several runs share the terminal."""
        self.label = label
        self._started: dict[str, float] = {}
        self._last_plain = 0.0
        self._console = console(stderr=True)
        # Luigi forks if it has several workers; a status line belongs to one run in one process
        self._process = None if label or not self._console.is_terminal else os.getpid()

    def wait(self, stage: str) -> None:
        """Report that another process builds the stage's artifact."""
        self.print_line(f"{stage}: waiting for another process that builds it")

    def start(self, stage: str) -> None:
        """Report that a stage has started."""
        self._started[stage] = time.monotonic()
        self.print_line(f"{stage}: started")

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """Show the stage's latest progress line, if there is one."""
        if line is None:
            return
        text = f"{stage}: {count(line)} {line.get('message', '')}".rstrip()
        if self._process == os.getpid():
            show_status(text[: shutil.get_terminal_size().columns - 1])
        elif time.monotonic() - self._last_plain >= PLAIN_EVERY_S:
            self._last_plain = time.monotonic()
            self.print_line(text)

    def warn(self, stage: str, text: str) -> None:
        """Print a warning of the stage."""
        self.print_line(f"{stage}: warning: {text}")

    def finish(self, stage: str, state: str) -> None:
        """Report the end of a stage: done, cached (another process built it), pulled or failed."""
        elapsed_s = self.elapsed_s(stage)
        duration = "" if elapsed_s is None else f" after {elapsed_s:.1f} s"
        self.print_line(f"{stage}: {state}{duration}")

    def elapsed_s(self, stage: str) -> float | None:
        """Return the seconds since a stage was started in this process; None if it was not."""
        started = self._started.get(stage)
        return None if started is None else time.monotonic() - started

    def print_line(self, text: str) -> None:
        """Print a line, prefixed with the run's label, in place of the status line."""
        if self._process == os.getpid():
            show_status("")
        self._console.print(self.label + text, markup=False, soft_wrap=True)
        sys.stderr.flush()


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
