"""Output on stdout and stderr: streams that never fail a command, consoles and tables."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

import rich.console
import rich.table
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from stages.report.text import neutral

PLAIN_WIDTH = 160
NARROW = 80
"""Terminal width, in columns, below which optional columns are left out."""


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
        stream = _raw(sys.stderr)
        stream.write(f"\r\033[K{neutral(text)}")
        stream.flush()


class Console(rich.console.Console):
    """Console that makes control characters visible and lets BrokenPipeError reach the command."""

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


def console(stderr: bool = False) -> Console:
    """Return a console with the width of the terminal or COLUMNS, otherwise one wide enough for tables.

    Markup is off, since [/usr/local/…] in an override would be parsed as a tag. NO_COLOR turns colours off.
    """
    stream, columns = sys.stderr if stderr else sys.stdout, os.environ.get("COLUMNS", "")
    is_width_known = stream.isatty() or (columns.isdecimal() and int(columns) > 0)
    return Console(
        file=_raw(stream),
        highlight=False,
        markup=False,
        emoji=False,
        width=None if is_width_known else PLAIN_WIDTH,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


class Table(rich.table.Table):
    """Table that never truncates text: long words are folded."""

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        for column in self.columns:
            column.overflow = "fold"
        yield from super().__rich_console__(console, options)
