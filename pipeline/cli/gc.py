"""`grpoflow gc`."""

from __future__ import annotations

from argparse import Namespace

from pipeline.cli.command import Commands, store_of
from pipeline.errors import Exit
from pipeline.store import collect


def register(commands: Commands) -> None:
    """Options of `gc`."""
    parser = commands.add(
        "gc", gc, "list what no kept run needs; with --delete, remove it", "--keep 3 --delete"
    )
    parser.add_argument(
        "--keep", type=int, default=5, metavar="N", help="newest runs that are kept (default 5)"
    )
    parser.add_argument("--delete", action="store_true", help="remove it; without this nothing is touched")


def gc(options: Namespace) -> int:
    """List, and with --delete remove, what no kept run needs."""
    store = store_of(options)
    if not store.root.is_dir():
        print(f"{store.root}: no store there, nothing to collect")
        return Exit.DONE
    garbage = collect.collect(store, options.keep, options.delete)
    for item in garbage:
        print(f"{item.kind:10} {item.bytes / 2**20:10.1f} MiB  {item.path}")
    total = sum(item.bytes for item in garbage) / 2**20
    done = "removed" if options.delete else "could be removed (nothing was; add --delete)"
    print(f"{len(garbage)} directories, {total:.1f} MiB {done}")
    unknown = collect.strangers(store)
    if unknown:
        print(f"{len(unknown)} artifacts that no recorded run made are left alone, {unknown[0]} among them")
    return Exit.DONE
