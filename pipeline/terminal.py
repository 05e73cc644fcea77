"""How text meets people on stdout."""

from __future__ import annotations

import sys

from rich.console import Console

PLAIN_WIDTH = 160


def console() -> Console:
    """For stdout: as wide as the terminal, and wide enough for tables where there is none.

    Without markup: [/usr/local/…] in an override is no closing tag.
    """
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def elapsed(seconds: float) -> str:
    """Seconds as people read them: 8.1 s, 3 min 05 s, 2 h 10 min; none where a clock was put back."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
