"""`grpoflow remote`: what a remote holds; and what `push` and `pull` share with it."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table

from pipeline.cli.command import Commands
from pipeline.config.load import load
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan.graph import VERSIONS
from pipeline.plan.shared import open_place
from pipeline.run.run import prepare_plan
from pipeline.store.remote import records
from pipeline.store.remote.choose import copies_of, remote_keys
from pipeline.store.remote.place import Place
from pipeline.store.store import Key, Store
from pipeline.terminal import console
from stages.base.files import shown_bytes


def register(commands: Commands) -> None:
    """Add `remote`."""
    parser = commands.add(
        "remote",
        remote,
        "show what the remote has of this configuration and in all",
        "status remote=s3://bucket/team",
    )
    parser.add_argument("words", nargs="*", metavar="status", help="the only one: status")


def remote(options: Namespace) -> int:
    """Show what is here, what is there, and how much it is."""
    words = split_words(options)
    if words not in ([], ["status"]):
        raise ConfigError([Problem("remote", " ".join(words), "unknown", "type: grpoflow remote status")])
    place, store = place_of(options)
    planned = planned_keys(options)
    copies = copies_of(place, planned)
    table = Table(title=f"this configuration · remote {place.url} · store {store.root}", title_justify="left")
    for column in ("stage", "here", "there", "bytes", "artifact"):
        table.add_column(column, overflow="fold")
    for key, found in copies.items():
        here = "whole" if store.problem(key) is None else ""
        size = shown_bytes(found[0].bytes) if found else ""
        table.add_row(key.stage, here, "whole" if found else "", size, str(key))
    console().print(table)
    print(f"in all: {len(remote_keys(place))} artifacts, {len(records.runs(place))} runs at {place.url}")
    return Exit.DONE


def split_words(options: Namespace) -> list[str]:
    """The words that are no overrides; those go to the overrides."""
    options.overrides = [*(word for word in options.words if "=" in word), *options.overrides]
    return [word for word in options.words if "=" not in word]


def place_of(options: Namespace) -> tuple[Place, Store]:
    """The remote and the store that the overrides name.

    Raises:
        ConfigError: they name no remote.
    """
    config = load(options.overrides, options.config_dir)
    return open_place(config.remote), Store(Path(config.store).absolute())


def planned_keys(options: Namespace, words: Sequence[str] | None = None) -> list[Key]:
    """The artifacts that the configuration plans; with words, where one of them is a stage."""
    if words and not set(words) & set(VERSIONS):
        return []
    return [spec.key for spec in prepare_plan(options.overrides, options.config_dir)[0].specs]


@contextmanager
def telling(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Tell on a terminal how many of `total` bytes have been moved."""
    moved, last = 0, 0.0

    def told(count: int) -> None:
        nonlocal moved, last
        moved += count
        if sys.stderr.isatty() and time.monotonic() - last > 0.2:
            last = time.monotonic()
            shown = f"{shown_bytes(moved)} of {shown_bytes(total)}"
            print(f"\r\033[K{what}: {shown}", end="", file=sys.stderr, flush=True)

    try:
        yield told
    finally:
        if last:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
