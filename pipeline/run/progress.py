"""Progress display of a run: a live table on a terminal, plain lines elsewhere.

All of it goes to stderr; stdout is for the summary and the result line.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from rich.table import Table

from pipeline.terminal import NARROW, console
from stages.base.files import open_regular, parse_json

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_EVERY_S = 15.0
Listener = Callable[[Mapping[str, Any]], None]


class Display:
    """Display of the stages of one run."""

    def __init__(self, stages: Sequence[str], cached: Sequence[str], label: str = "") -> None:
        self.label = label  # prefix of each line if several runs share the terminal
        self._console = console(stderr=True)
        self._rows: dict[str, dict[str, Any]] = {
            name: {"state": "cached" if name in cached else "waiting"} for name in stages
        }
        self._process = os.getpid()
        self._live: Live | None = None
        self._last_plain = 0.0
        self.listener: Listener | None = None
        """Callback for each progress line of the running stage."""

    @property
    def states(self) -> dict[str, str]:
        """Stage -> waiting, cached, remote, running, done, pulled, failed or interrupted."""
        return {name: row["state"] for name, row in self._rows.items()}

    def mark_remote(self, stage: str) -> None:
        """Mark a stage whose artifact stays on the remote."""
        self._rows[stage]["state"] = "remote"

    def wait(self, stage: str) -> None:
        """Report that another process builds the stage's artifact."""
        self.print_line(f"{stage}: waiting for another process that builds it")

    def start(self, stage: str) -> None:
        """Report that a stage has started."""
        self._rows[stage] = {"state": "running", "since": time.monotonic()}
        if self._is_live():
            from rich.live import Live  # the import takes 30 ms, and fully cached runs do not need it

            self._live = Live(self._table(), console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        else:
            self.print_line(f"{stage}: started")

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """Show the stage's latest progress line, if there is one."""
        if line is None:
            return
        self._rows[stage]["line"] = line
        if self.listener is not None:
            self.listener(line)
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() - self._last_plain >= PLAIN_EVERY_S:
            self._last_plain = time.monotonic()
            self.print_line(f"{stage}: {count(line)} {line.get('message', '')}".rstrip())

    def warn(self, stage: str, text: str) -> None:
        """Print a warning of the stage above the live table."""
        self.print_line(f"{stage}: warning: {text}")

    def finish(self, stage: str, state: str) -> None:
        """Report the end of a stage: done, cached (another process built it), pulled or failed."""
        row = self._rows[stage]
        row.update(state=state, duration_s=time.monotonic() - row.get("since", time.monotonic()))
        if self._live is not None:
            self._live.stop()
            self._live = None
        duration = f" after {row['duration_s']:.1f} s" if "since" in row else ""
        self.print_line(f"{stage}: {state}{duration}")

    def _is_live(self) -> bool:
        """Return True on a terminal with one run and one process (Luigi forks if it has several workers)."""
        return not self.label and self._console.is_terminal and self._process == os.getpid()

    def print_line(self, text: str) -> None:
        """Print a line above the table, prefixed with the run's label."""
        self._console.print(self.label + text, markup=False, soft_wrap=True)
        sys.stderr.flush()

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar

        table = Table.grid(padding=(0, 2))
        for name, row in self._rows.items():
            line = row.get("line") or {}
            seconds = row.get("duration_s") or None
            if row["state"] == "running":
                seconds = time.monotonic() - row["since"]
            bar: Any = ""
            if row["state"] == "running" and line.get("total") and self._console.width >= NARROW:
                bar = ProgressBar(total=line["total"], completed=line["step"], width=24)
            message = f"{count(line)} {line.get('message', '')}" if row["state"] == "running" and line else ""
            table.add_row(name, row["state"], f"{seconds:.0f} s" if seconds is not None else "", bar, message)
        return table


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
