"""`grpoflow verify` and `gc`: damage in the store, and removal of what no retained run needs."""

import os
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from pipeline.cli.command import Commands, add_json, bounded, store_of
from pipeline.config.load import load
from pipeline.errors import Exit
from pipeline.store import collect
from pipeline.store.verify import artifacts, checkpoints, quarantine
from pipeline.store.verify import verify as find_damage
from pipeline.terminal import as_json, say, show_status
from stages.base.files import shown_bytes


def register(commands: Commands) -> None:
    """Add `verify` and `gc`."""
    check = "check every artifact of the store (exit 1: damage found)"
    parser = commands.add("verify", verify, check, "--deep store=/data/store")
    help_text = "hash the content of all files instead of comparing their sizes"
    parser.add_argument("--deep", action="store_true", help=help_text)
    parser.add_argument(
        "--repair",
        action="store_true",
        help="move damage to quarantine; the next run rebuilds it",
    )
    add_json(parser)

    parser = commands.add(
        "gc", gc, "list what no retained run needs; with --delete, remove it", "--keep 3 --delete"
    )
    parser.add_argument(
        "--keep",
        type=bounded(0),
        default=5,
        metavar="N",
        help="newest runs to retain (default 5)",
    )
    parser.add_argument("--delete", action="store_true", help="remove the listed directories")
    add_json(parser, "what could be, or was, removed")
    parser.add_argument(
        "--remote", action="store_true", help="on the remote; only artifacts older than remote.grace_days"
    )


def verify(options: Namespace) -> int:
    """Check all committed artifacts and the checkpoints of unfinished attempts."""
    store = store_of(options)
    counts = {"artifacts": len(artifacts(store)), "checkpoints": len(checkpoints(store))}
    damaged = []
    for finding in find_damage(
        store, options.deep, lambda path: show_status(f"checking {os.path.relpath(path, store.root)}")
    ):
        moved = quarantine(store, finding) if options.repair and finding.is_damaged else None
        damaged.append({"path": finding.path, "problem": finding.problem, "moved_to": moved})
    show_status("")
    if options.json:
        print(as_json({**counts, "deep": options.deep, "damaged": damaged}))
    else:
        for item in damaged:
            say(f"damaged {item['path']}: {item['problem']}")
            if item["moved_to"]:
                say(f"  moved to {item['moved_to']}; the next run rebuilds it")
        checked = " and ".join(f"{count} {name}" for name, count in counts.items())
        say(f"{checked} checked{' by digest' if options.deep else ''}, {len(damaged)} damaged")
    return Exit.FAILED if any(item["moved_to"] is None for item in damaged) else Exit.DONE


def gc(options: Namespace) -> int:
    """List, and with --delete remove, what no retained run needs."""
    left_alone: dict[str, list[Path]] = {}
    if options.remote:
        from pipeline.cli.remote import connect  # imported late: it loads fsspec
        from pipeline.store.remote import upkeep

        remote, _ = connect(options)
        days = load(options.overrides, options.config_dir).remote.grace_days
        garbage = upkeep.collect(remote, options.keep, days * 86_400, options.delete)
        kind = f"artifacts older than {days:g} days"
    else:
        store, kind = store_of(options), "directories"
        garbage = collect.collect(store, options.keep, options.delete) if store.root.is_dir() else []
        left_alone = {"left_alone": collect.unrecorded(store)}
    if options.json:
        print(
            as_json({"garbage": [asdict(item) for item in garbage], "deleted": options.delete, **left_alone})
        )
        return Exit.DONE
    for item in garbage:
        say(f"{shown_bytes(item.bytes):>10}  {item.path}  ({item.kind})")
    total = shown_bytes(sum(item.bytes for item in garbage))
    say(f"{len(garbage)} {kind}, {total} {'removed' if options.delete else 'can be removed with --delete'}")
    for paths in filter(None, left_alone.values()):
        say(f"{len(paths)} artifacts of no recorded run are left alone, for example {paths[0]}")
    return Exit.DONE
