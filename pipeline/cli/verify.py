"""`grpoflow verify`."""

from __future__ import annotations

import sys
from argparse import Namespace

from pipeline.cli.command import Commands, store_of
from pipeline.errors import Exit
from pipeline.store.verify import artifacts, checkpoints, quarantine
from pipeline.store.verify import verify as find_damage


def register(commands: Commands) -> None:
    """Options of `verify`."""
    parser = commands.add(
        "verify",
        verify,
        "check every artifact of the store (exit 1: damage found)",
        "--deep store=/data/store",
    )
    parser.add_argument("--deep", action="store_true", help="compare every file with its digest")
    parser.add_argument(
        "--repair", action="store_true", help="move damaged artifacts away, to be built again"
    )


def verify(options: Namespace) -> int:
    """Check every committed artifact of the store, and what unfinished attempts go on from."""
    store = store_of(options)
    total, unfinished, found = len(artifacts(store)), len(checkpoints(store)), []
    for finding in find_damage(store, options.deep, lambda path: _tell(f"checking {path}")):
        found.append(finding)
        print(f"damaged {finding.path}: {finding.problem}")
        if options.repair:
            print(f"  moved to {quarantine(store, finding)}; the next run does that work again")
    more = f" and {unfinished} checkpoints of unfinished attempts" if unfinished else ""
    print(f"{total} artifacts{more} checked{' by digest' if options.deep else ''}, {len(found)} damaged")
    return Exit.FAILED if found and not options.repair else Exit.DONE


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
