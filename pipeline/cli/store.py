"""`grpoflow verify` and `gc`: whether the store is whole, and what of it nobody needs."""

import json
import sys
from argparse import Namespace
from dataclasses import asdict

from pipeline.cli.command import Commands, store_of
from pipeline.errors import Exit
from pipeline.store import collect
from pipeline.store.verify import artifacts, checkpoints, quarantine
from pipeline.store.verify import verify as find_damage


def register(commands: Commands) -> None:
    """Add the commands that look after a store."""
    check = "check every artifact of the store (exit 1: damage found)"
    parser = commands.add("verify", verify, check, "--deep store=/data/store")
    parser.add_argument("--deep", action="store_true", help="compare every file with its digest")
    parser.add_argument(
        "--repair", action="store_true", help="move damaged artifacts away, to be built again"
    )

    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--remote", action="store_true", help="check the copies on the remote instead")

    parser = commands.add(
        "gc", gc, "list what no kept run needs; with --delete, remove it", "--keep 3 --delete"
    )
    parser.add_argument(
        "--keep", type=int, default=5, metavar="N", help="newest runs that are kept (default 5)"
    )
    parser.add_argument("--delete", action="store_true", help="remove it; without this nothing is touched")
    parser.add_argument("--json", action="store_true", help="for programs: what could go, or went")
    parser.add_argument(
        "--remote", action="store_true", help="on the remote: condemn it first, and remove it the next time"
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=24.0,
        metavar="HOURS",
        help="on the remote: between the two (default 24)",
    )


def verify(options: Namespace) -> int:
    """Check every committed artifact, and what unfinished attempts go on from."""
    if options.remote:
        return _verify_remote(options)
    store = store_of(options)
    say = _silent if options.json else print
    total, unfinished, damaged = len(artifacts(store)), len(checkpoints(store)), []
    for finding in find_damage(store, options.deep, _tell):
        say(f"damaged {finding.path}: {finding.problem}")
        moved = quarantine(store, finding) if options.repair else None
        damaged.append({"path": finding.path, "problem": finding.problem, "moved_to": moved})
        if options.repair:
            say(f"  moved to {moved}; the next run does that work again")
    more = f" and {unfinished} checkpoints of unfinished attempts" if unfinished else ""
    say(f"{total} artifacts{more} checked{' by digest' if options.deep else ''}, {len(damaged)} damaged")
    if options.json:
        counts = {"artifacts": total, "checkpoints": unfinished, "deep": options.deep}
        _print_json({**counts, "damaged": damaged})
    return Exit.FAILED if damaged and not options.repair else Exit.DONE


def _silent(text: str) -> None:
    """In place of print, where programs read."""


def _print_json(values: object) -> None:
    print(json.dumps(values, indent=1, default=str))


def _tell(path: object) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[Kchecking {path}", end="", file=sys.stderr, flush=True)


def gc(options: Namespace) -> int:
    """List, and with --delete remove, what no kept run needs."""
    if options.remote:
        return _gc_remote(options)
    store = store_of(options)
    if not store.root.is_dir() and not options.json:
        print(f"{store.root}: no store there, nothing to collect")
        return Exit.DONE
    garbage = collect.collect(store, options.keep, options.delete) if store.root.is_dir() else []
    unknown = collect.strangers(store)
    if options.json:
        _print_json(
            {"garbage": [asdict(item) for item in garbage], "deleted": options.delete, "left_alone": unknown}
        )
        return Exit.DONE
    for item in garbage:
        print(f"{item.kind:10} {item.bytes / 2**20:10.1f} MiB  {item.path}")
    total = sum(item.bytes for item in garbage) / 2**20
    done = "removed" if options.delete else "could be removed (nothing was; add --delete)"
    print(f"{len(garbage)} directories, {total:.1f} MiB {done}")
    if unknown:
        print(f"{len(unknown)} artifacts that no recorded run made are left alone, {unknown[0]} among them")
    return Exit.DONE


def _verify_remote(options: Namespace) -> int:
    """Check every whole copy on the remote; --repair lets the next push replace what is damaged."""
    from pipeline.cli.remote import place_of
    from pipeline.store.remote import upkeep

    place, _ = place_of(options)
    say = _silent if options.json else print
    total, damaged = 0, []
    for finding in upkeep.verify(place, options.deep):
        total += 1
        if finding is not None:
            damaged.append({"path": finding.path, "problem": finding.problem, "condemned": options.repair})
            say(f"damaged {place.url}/{finding.path}: {finding.problem}")
            if options.repair:
                upkeep.condemn(place, finding.path)
                say("  condemned; the next push brings another copy")
    say(f"{total} copies checked{' by digest' if options.deep else ''}, {len(damaged)} damaged")
    if options.json:
        _print_json({"copies": total, "deep": options.deep, "damaged": damaged})
    return Exit.FAILED if damaged and not options.repair else Exit.DONE


def _gc_remote(options: Namespace) -> int:
    from pipeline.cli.remote import place_of
    from pipeline.store.remote import upkeep

    place, _ = place_of(options)
    doomed = upkeep.collect(place, options.keep, options.grace * 3600, options.delete)
    if options.json:
        _print_json({"copies": [asdict(item) for item in doomed], "deleted": options.delete})
        return Exit.DONE
    for item in doomed:
        then = "removed" if item.goes else "waits" if item.is_marked else "condemned"
        print(
            f"{then if options.delete or then == 'waits' else f'to be {then}':16} {item.path}  ({item.why})"
        )
    gone = sum(item.goes for item in doomed)
    done = "" if options.delete else "; nothing was touched (add --delete)"
    print(
        f"{len(doomed)} copies at {place.url}, {gone} of them condemned {options.grace:g} h ago or more{done}"
    )
    return Exit.DONE
