"""Output on stdout and stderr: streams that never fail a command, sentences and tables that fit a terminal.

In a terminal, lines break between words only: a path, an id or a number that is longer than a line is printed
whole, and the terminal continues it, so that it can be copied. In a pipe or file, sentences are single lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

import rich.box
import rich.console
import rich.table
from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from stages.report.text import neutral

PLAIN_WIDTH = 160
"""Width of tables, in columns, where no terminal shows them."""
WIDE = 120
"""Width of a terminal, in columns, from which tables show all of their columns."""
GAP = 2
"""Spaces between the columns of a table in a terminal."""
LEAST_TEXT = 20
"""Columns that a text needs in a table; with less it is printed below its row."""


class RawStream:
    """Standard stream that stores its first failure and drops later text, so that the command continues."""

    def __init__(self, stream: TextIO) -> None:
        """Wrap `stream`; characters that its encoding cannot represent are written as escape sequences."""
        self._stream = stream
        self.failure: OSError | None = None
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text unchanged; raise BrokenPipeError if the reader has closed the pipe."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush the buffer; raise BrokenPipeError if the reader has closed the pipe."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.failure is not None:
            return
        try:
            action()
        except OSError as error:
            self.failure = error
            with contextlib.suppress(OSError):  # the interpreter flushes the stream at its end
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if isinstance(error, BrokenPipeError):
                raise


class PlainStream:
    """Standard stream that makes control and text-direction characters visible."""

    def __init__(self, raw: RawStream) -> None:
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def write(self, text: str) -> int:
        """Write the text without control characters."""
        self.raw.write(neutral(text))
        return len(text)


def install_streams() -> None:
    """Replace sys.stdout and sys.stderr until this process ends, unless they are replaced already."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed; otherwise a file of the store would get its number. Writing to it fails
            stream = open(os.devnull, encoding="utf-8")  # noqa: SIM115
        is_output = name != "stdin" and not isinstance(stream, PlainStream)
        setattr(sys, name, PlainStream(RawStream(stream)) if is_output else stream)


def has_lost_reader() -> bool:
    """Return True if the reader of stdout or stderr has closed the pipe."""
    return any(isinstance(_raw(stream).failure, BrokenPipeError) for stream in (sys.stdout, sys.stderr))


def report_lost_output() -> bool:
    """Return True if text on stdout was lost, and report why on stderr."""
    failure = _raw(sys.stdout).failure
    if failure is not None:
        reason = failure.strerror or failure
        print(f"error: stdout: {reason}: its text is lost; give a file or pipe to write to", file=sys.stderr)
    return failure is not None


def _raw(stream: Any) -> Any:
    return stream.raw if isinstance(stream, PlainStream) else stream


def as_json(values: object, indent: int | None = 1, default: Callable[[Any], Any] = str) -> str:
    """Return JSON in ASCII without control characters; reading it gives the exact values."""
    return json.dumps(values, indent=indent, default=default).replace("\x7f", "\\u007f")


def show_status(text: str) -> None:
    """Replace the last line of a terminal on stderr with `text`; do nothing if stderr is not a terminal."""
    if sys.stderr.isatty():
        stream, room = _raw(sys.stderr), (terminal_width(sys.stderr) or 80) - 1
        shown = neutral(text)
        while cell_len(shown) > room:  # the terminal would continue it in a line that is never cleared
            shown = shown[:-2] + "…"
        stream.write(f"\r\033[K{shown}")
        stream.flush()


class Console(rich.console.Console):
    """Console that makes control characters visible and lets BrokenPipeError reach the command."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print like rich, but never cut a line."""
        super().print(*objects, **{"crop": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Render like rich, but without control characters, so that widths are right."""
        return super().render_str(neutral(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render like rich, but without control characters in any text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else neutral(text), style, control)

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError; rich would exit with 1 instead."""
        raise


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the width of the terminal that shows a stream (default: stdout), or COLUMNS; else None."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    with contextlib.suppress(OSError, ValueError):  # a terminal without a size, or no real one
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


def console(stderr: bool = False) -> Console:
    """Return a console with the width of the terminal or COLUMNS, otherwise one wide enough for tables.

    Markup is off, since [/usr/local/…] in an override would be parsed as a tag. NO_COLOR turns colours off.
    """
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=_raw(stream),
        highlight=False,
        markup=False,
        emoji=False,
        width=terminal_width(stream) or PLAIN_WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def say(text: str, stderr: bool = False, indent: str = "  ") -> None:
    """Print sentences; where a terminal needs a further line, that begins with `indent`.

    COLUMNS does not count in a pipe: programs read sentences as lines, and Python's readline sets COLUMNS for
    all child processes.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = terminal_width(stream) if stream.isatty() else None
    lines = [part for line in text.split("\n") for part in wrapped(line, width, indent)]
    # In one piece: points of a sweep print from several threads, and print() writes the end of a line apart.
    stream.write("\n".join(lines) + "\n")
    stream.flush()


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """Return a line as lines of at most `width` columns that break between words (None: the line itself).

    Further lines begin with the spaces of the first one and `indent`. A word that is longer has its own line.
    """
    text = neutral(text)
    if width is None or cell_len(text) <= width:
        return [text]
    start = text[: len(text) - len(text.lstrip(" "))]
    lines, line = [], start
    for space, word in re.findall(r"(\s*)(\S+)", text):
        if line.strip() and cell_len(line + space + word) > width:
            lines.append(line)
            line = start + indent
        line += space + word if line.strip() else word
    return [*lines, line]


def command_lines(words: Sequence[str], width: int | None) -> list[str]:
    """Return a command line whose lines end with a backslash where they continue."""
    lines = wrapped(" ".join(words), None if width is None else max(1, width - 2), "    ")
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    kind: Literal["words", "number", "text", "note"] = "words"
    """words are never broken (ids, states); numbers are aligned at the right; a text may take several lines;
    a note takes one, below its row if there is no room beside it, without the words that do not fit."""
    least: int = 0
    """Width of the terminal from which the column is shown."""


@dataclass
class Table:
    """Table that breaks no word: what does not fit side by side is printed below each other.

    In a terminal it has no borders. Elsewhere it has, and all of its columns.
    """

    columns: Sequence[Column | str]
    title: str = ""
    head: bool = True
    """Print the names of the columns."""
    borders: bool = True
    """Draw borders where no terminal shows the table."""
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Add a row; missing cells are empty."""
        self.rows.append(cells + ("",) * (len(self.columns) - len(cells)))

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        columns = [Column(column) if isinstance(column, str) else column for column in self.columns]
        cells = [[neutral(cell) for cell in row] for row in self.rows]
        width = terminal_width(sys.stdout)
        if width is None and self.borders:
            yield from self._bordered(columns, cells, options.max_width)
            return
        width = PLAIN_WIDTH if width is None else width
        shown = [index for index, column in enumerate(columns) if column.least <= width]
        picked = [[row[index] for index in shown] for row in cells]
        for line in wrapped(self.title, width) if self.title else ():
            yield Text(line, "bold", no_wrap=True, overflow="ignore", end="\n")
        for line, style in _Layout([columns[index] for index in shown], picked, width, self.head).lines():
            yield Text(line.rstrip(), style, no_wrap=True, overflow="ignore", end="\n")

    def _bordered(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> RenderResult:
        """Yield the table with borders, whose texts are as wide as `width` allows."""
        room = width - 3 * len(columns) - 1
        widths = _shared_out(_sizes(columns, rows), room)
        table = rich.table.Table(
            title=self.title or None,
            title_justify="left",
            show_header=self.head,
            box=rich.box.HEAVY_HEAD if self.head else None,
        )
        for column, cells in zip(columns, widths, strict=True):
            justify: Literal["left", "right"] = "right" if column.kind == "number" else "left"
            table.add_column(column.name, justify=justify, width=cells)
        for row in rows:
            table.add_row(*row)
        total = max(width, sum(widths) + 3 * len(columns) + 1)
        # texts as they are: [/usr] is no markup, and :car: is no picture
        console = rich.console.Console(width=total, markup=False, emoji=False, highlight=False)
        yield from console.render(table)


def _sizes(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return the least and the most width of each column: of its longest word, and of its longest line."""
    sizes = []
    for index, column in enumerate(columns):
        lines = [column.name, *(line for row in rows for line in row[index].split("\n"))]
        words = (
            lines if column.kind in ("words", "number") else [word for line in lines for word in line.split()]
        )
        sizes.append((max(map(cell_len, words), default=0), max(map(cell_len, lines))))
    return sizes


def _shared_out(sizes: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Return widths between the least and the most of each column; the widest columns yield first."""
    widths = [most for _, most in sizes]
    while sum(widths) > room:
        reducible = [index for index, (least, _) in enumerate(sizes) if widths[index] > least]
        if not reducible:
            break
        widest = max(reducible, key=lambda index: widths[index])
        widths[widest] -= 1
    return widths


@dataclass
class _Layout:
    """Arrangement of a table's cells in a terminal."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    width: int
    head: bool

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield lines with their style."""
        sizes = _sizes(self.columns, self.rows)
        beside = list(range(len(self.columns)))
        long = [i for i in beside[1:] if self.columns[i].kind in ("note", "text")]
        if len(long) == 1 and not self._fits(sizes, beside):
            beside.remove(long[0])
        if not self._fits(sizes, beside):
            for row in self.rows:
                yield from self._record(row)
            return
        room = self.width - GAP * (len(beside) - 1)
        widths = _shared_out([sizes[i] for i in beside], room)
        if self.head:
            names = [self.columns[i].name for i in beside]
            yield from ((line, "bold") for line in self._side_by_side(names, beside, widths))
        for row in self.rows:
            yield from ((line, "") for line in self._side_by_side([row[i] for i in beside], beside, widths))
            for i in (i for i in range(len(row)) if i not in beside and row[i]):
                yield from ((line, "") for line in self._below(self.columns[i], row[i]))

    def _fits(self, sizes: Sequence[tuple[int, int]], beside: Sequence[int]) -> bool:
        """Return True if columns fit side by side; a note needs one line and a text LEAST_TEXT columns."""
        least = GAP * (len(beside) - 1)
        for kind, (low, most) in ((self.columns[i].kind, sizes[i]) for i in beside):
            text = min(most, LEAST_TEXT) if kind == "text" else 0
            least += most if kind == "note" else max(low, text)
        return least <= self.width

    def _side_by_side(
        self, cells: Sequence[str], beside: Sequence[int], widths: Sequence[int]
    ) -> Iterator[str]:
        """Yield the lines of a row."""
        blocks = [
            [line for part in cell.split("\n") for line in wrapped(part, width)]
            for cell, width in zip(cells, widths, strict=True)
        ]
        for number in range(max(map(len, blocks))):
            parts = []
            for block, column, width in zip(blocks, beside, widths, strict=True):
                text = block[number] if number < len(block) else ""
                space = " " * (width - cell_len(text))
                parts.append(space + text if self.columns[column].kind == "number" else text + space)
            yield (" " * GAP).join(parts)

    def _below(self, column: Column, cell: str) -> Iterator[str]:
        """Yield a note or text below its row."""
        lines = [line for part in cell.split("\n") for line in wrapped(f"    {part}", self.width)]
        if column.kind != "note" or len(lines) == 1:
            yield from lines
        else:
            (first, *_) = wrapped(f"    {cell}", self.width - 2)
            yield f"{first} …" if cell_len(first) <= self.width - 2 else "    …"

    def _record(self, row: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield a row as a block: its first cell, then a line for each other cell."""
        yield row[0], "bold"
        named = max((cell_len(column.name) for column in self.columns[1:]), default=0)
        for column, cell in zip(self.columns[1:], row[1:], strict=True):
            if not cell:
                continue
            start = f"  {column.name}{' ' * (named - cell_len(column.name))}  "
            room = self.width - cell_len(start)
            if max(map(cell_len, cell.split()), default=0) > room:  # its longest word needs a line of its own
                yield start.rstrip(), ""
                start, room = "    ", self.width - 4
            for line in (part for text in cell.split("\n") for part in wrapped(text, max(1, room))):
                yield start + line, ""
                start = " " * cell_len(start)
