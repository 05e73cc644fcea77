"""How text meets people on stdout and stderr."""

import os
import sys

import rich.console
import rich.table
from rich.console import ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

PLAIN_WIDTH = 160
NARROW = 80
"""Columns below which a table may become blocks."""


class Console(rich.console.Console):
    """Leaves a reader who is gone to the command, which ends as others do."""

    def on_broken_pipe(self) -> None:
        """Raise what was raised, where rich would exit with 1."""
        raise


def console(stderr: bool = False) -> Console:
    """As wide as the terminal or COLUMNS says, and wide enough for tables where neither does.

    Without markup: [/usr/local/…] in an override is no closing tag. NO_COLOR: no other style either.
    """
    stream, columns = sys.stderr if stderr else sys.stdout, os.environ.get("COLUMNS", "")
    told = stream.isatty() or (columns.isdecimal() and int(columns) > 0)
    return Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if told else PLAIN_WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


class Table(rich.table.Table):
    """Loses no text: cells fold, and where a narrow terminal has no room for its words, a row is a block."""

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        for column in self.columns:
            column.overflow = "fold"
        if options.max_width >= NARROW or self._needed(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title))
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            block = rich.table.Table.grid(padding=(0, 1))
            block.add_column(no_wrap=True)
            block.add_column(overflow="fold")
            for column, cell in zip(self.columns, cells, strict=True):
                if cell:
                    block.add_row(column.header, cell)
            yield block
            yield Text()

    def _needed(self, console: rich.console.Console, options: ConsoleOptions) -> int:
        """Columns in which every word has room."""
        return Measurement.get(console, options.update_width(10 * PLAIN_WIDTH), self).minimum


def elapsed(seconds: float) -> str:
    """Seconds as people read them: 8.1 s, 3 min 05 s, 2 h 10 min; none where a clock was put back."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
