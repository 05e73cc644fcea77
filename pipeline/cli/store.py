"""`grpoflow verify` and `gc`: damage in the store, and removal of what no retained run needs."""

from argparse import Namespace
from dataclasses import asdict

from pipeline.cli.command import Bounded, Commands, store_of
from pipeline.config.load import load
from pipeline.errors import Exit
from pipeline.store import collect
from pipeline.store.verify import artifacts, checkpoints, quarantine
from pipeline.store.verify import verify as find_damage
from pipeline.terminal import as_json, show_status


def register(commands: Commands) -> None:
    """Add `verify` and `gc`."""
    check = "check every artifact of the store (exit 1: damage found)"
    parser = commands.add("verify", verify, check, "--deep store=/data/store")
    parser.add_argument("--deep", action="store_true", help="compare every file with its digest")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="move damage to quarantine; the next run rebuilds it",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--remote", action="store_true", help="check the copies on the remote instead")

    parser = commands.add(
        "gc", gc, "list what no retained run needs; with --delete, remove it", "--keep 3 --delete"
    )
    parser.add_argument(
        "--keep",
        type=Bounded(int, 0),
        default=5,
        metavar="N",
        help="newest runs to retain (default 5)",
    )
    parser.add_argument("--delete", action="store_true", help="remove the listed directories")
    parser.add_argument(
        "--json", action="store_true", help="machine-readable output: what could be, or was, removed"
    )
    parser.add_argument(
        "--remote", action="store_true", help="on the remote; only artifacts older than remote.grace_days"
    )


def verify(options: Namespace) -> int:
    """Check every committed artifact, and the checkpoints of unfinished attempts."""
    if options.remote:
        return _verify_remote(options)
    store = store_of(options)
    print_line = _print_nothing if options.json else print
    total, unfinished, damaged = len(artifacts(store)), len(checkpoints(store)), []
    for finding in find_damage(store, options.deep, _show_progress):
        print_line(f"damaged {finding.path}: {finding.problem}")
        moved = quarantine(store, finding) if options.repair else None
        damaged.append({"path": finding.path, "problem": finding.problem, "moved_to": moved})
        if options.repair:
            print_line(f"  moved to {moved}; the next run does that work again")
    more = f" and {unfinished} checkpoints of unfinished attempts" if unfinished else ""
    print_line(
        f"{total} artifacts{more} checked{' by digest' if options.deep else ''}, {len(damaged)} damaged"
    )
    if options.json:
        counts = {"artifacts": total, "checkpoints": unfinished, "deep": options.deep}
        print(as_json({**counts, "damaged": damaged}))
    return Exit.FAILED if damaged and not options.repair else Exit.DONE


def _print_nothing(text: str) -> None:
    """Replace print for machine-readable output."""


def _show_progress(path: object) -> None:
    show_status(f"checking {path}")


def gc(options: Namespace) -> int:
    """List, and with --delete remove, what no retained run needs."""
    if options.remote:
        return _gc_remote(options)
    store = store_of(options)
    if not store.root.is_dir() and not options.json:
        print(f"{store.root}: no store there, nothing to collect")
        return Exit.DONE
    garbage = collect.collect(store, options.keep, options.delete) if store.root.is_dir() else []
    unrecorded = collect.unrecorded(store)
    if options.json:
        items = [asdict(item) for item in garbage]
        print(as_json({"garbage": items, "deleted": options.delete, "left_alone": unrecorded}))
        return Exit.DONE
    for item in garbage:
        print(f"{item.kind:10} {item.bytes / 2**20:10.1f} MiB  {item.path}")
    total = sum(item.bytes for item in garbage) / 2**20
    done = "removed" if options.delete else "could be removed (nothing was; add --delete)"
    print(f"{len(garbage)} directories, {total:.1f} MiB {done}")
    if unrecorded:
        count, first = len(unrecorded), unrecorded[0]
        print(f"{count} artifacts that no recorded run made are left alone, {first} among them")
    return Exit.DONE


def _verify_remote(options: Namespace) -> int:
    """Check every complete artifact on the remote; --repair removes damaged ones."""
    from pipeline.cli.remote import connect
    from pipeline.store.remote import deletion, upkeep

    remote, _ = connect(options)
    print_line = _print_nothing if options.json else print
    total, damaged = 0, []
    for path, problem in upkeep.verify(remote, options.deep):
        total += 1
        if problem is None:
            continue
        damaged.append({"path": path, "problem": problem, "removed": options.repair})
        print_line(f"damaged {path}: {problem}")
        if options.repair:
            with deletion.deleting(remote):
                deletion.remove(remote, path)
            print_line("  removed; push it again")
    print_line(f"{total} artifacts checked{' by digest' if options.deep else ''}, {len(damaged)} damaged")
    if options.json:
        print(as_json({"artifacts": total, "deep": options.deep, "damaged": damaged}))
    return Exit.FAILED if damaged and not options.repair else Exit.DONE


def _gc_remote(options: Namespace) -> int:
    """List, and with --delete remove, old artifacts on the remote that no retained run needs."""
    from pipeline.cli.remote import connect
    from pipeline.store.remote import upkeep

    remote, _ = connect(options)
    days = load(options.overrides, options.config_dir).remote.grace_days
    garbage = upkeep.collect(remote, options.keep, days * 86_400, options.delete)
    if options.json:
        print(as_json({"garbage": [asdict(item) for item in garbage], "deleted": options.delete}))
        return Exit.DONE
    for item in garbage:
        print(f"{item.bytes / 2**20:10.1f} MiB  {item.path}  ({item.reason})")
    total = sum(item.bytes for item in garbage) / 2**20
    done = "removed from" if options.delete else "could be removed (nothing was; add --delete) from"
    print(f"{len(garbage)} artifacts older than {days:g} days, {total:.1f} MiB, {done} {remote.url}")
    return Exit.DONE
