"""What the tools on weights share: paths, formats, ranks, and a progress bar in bytes."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from pipeline.errors import ConfigError, Problem

DTYPES = ("bfloat16", "float16", "float32")  # bf16, fp16, fp32 are understood too
RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
MOST_RANKS = 1 << 20
"""More than any layout has; a list of more would fill the memory before anybody looks at it."""


def add_paths(parser: argparse.ArgumentParser, *names: str) -> None:
    """Positional paths."""
    for name in names:
        parser.add_argument(name, type=Path, metavar=name.upper())


def add_format(parser: argparse.ArgumentParser) -> None:
    """The files that are written."""
    parser.add_argument("--format", choices=("safetensors", "ckpt"), default="safetensors")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """What tensors are cast to."""
    parser.add_argument("--dtype", choices=DTYPES, type=_dtype, help="cast; default: keep")


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """Which ranks are written."""
    parser.add_argument("--ranks", metavar="0-7", help="only these ranks: one node's share")


def ranks(text: str | None) -> Sequence[int] | None:
    """`0-7`, `0,2,5` or both; None: all.

    Raises:
        ConfigError: anything else.
    """
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = RANKS.fullmatch(part)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers:
            remedy = "for example 0-7 or 0,2,5"
            raise ConfigError([Problem("--ranks", text, "must be numbers and ranges", remedy)])
        if len(found) + len(numbers) > MOST_RANKS:
            raise ConfigError(
                [Problem("--ranks", text, f"must be at most {MOST_RANKS:,} ranks", "name fewer")]
            )
        found += numbers
    return found


@contextlib.contextmanager
def shown_bytes(name: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar in bytes on a terminal, nothing elsewhere."""
    columns = (TextColumn(name), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _dtype(text: str) -> str:
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)
