"""`grpoflow push`, `pull` and `remote`: between the store and its remote, and what that holds."""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.cli.command import Commands
from pipeline.config.load import load
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan.graph import VERSIONS
from pipeline.plan.shared import open_place, warn
from pipeline.run import signals
from pipeline.run.run import prepare_plan
from pipeline.store import history
from pipeline.store.remote import records
from pipeline.store.remote.choose import choose, copies_of, local_keys, remote_keys
from pipeline.store.remote.copies import ROOM
from pipeline.store.remote.place import Place
from pipeline.store.remote.pull import pull
from pipeline.store.remote.push import is_there, push
from pipeline.store.store import Key, Store
from pipeline.terminal import Table, console
from stages.base.files import shown_bytes

WORDS = (
    "a stage of this configuration, a run (id, its beginning, name or last) or the beginning of a fingerprint"
)
Told = Callable[[int], None]


def register(commands: Commands) -> None:
    """Add `push`, `pull` and `remote`."""
    rest = "; without words, this configuration's"
    movers = (
        commands.add("push", push_, f"bring artifacts to the remote{rest}",
                     "last remote=s3://bucket/team", "convert tokenize model=qwen2_5_7b --dry-run"),
        commands.add("pull", pull_, f"bring artifacts from the remote{rest}",
                     "last remote=s3://bucket/team", "export model=qwen2_5_7b --dry-run"),
    )  # fmt: skip
    for parser in movers:
        parser.add_argument("words", nargs="*", metavar="RUN|STAGE|FINGERPRINT", help=WORDS)
        parser.add_argument("--dry-run", action="store_true", help="only say what would be brought")
    parser = commands.add(
        "remote",
        remote,
        "show what the remote has of this configuration and in all",
        "status remote=s3://bucket/team",
    )
    parser.add_argument("words", nargs="*", metavar="status", help="the only one: status")
    parser.add_argument("--json", action="store_true", help="for programs: where each artifact is")


def push_(options: Namespace) -> int:
    """Bring artifacts and the records of their runs to the remote."""
    words = split_words(options)
    place, store = place_of(options)
    known = local_keys(store)
    planned = planned_keys(options, words)
    runs = history.runs(store.root)
    keys = choose(words, planned, runs, known) if words else [key for key in planned if key in known]

    def sizes() -> Iterator[tuple[Key, int | str]]:
        for key in keys:
            files = store.manifest(key).files.values()
            yield key, "is there" if is_there(place, key) else sum(entry["size"] for entry in files)

    total = _move(options, "push", sizes(), lambda key, told: push(place, store, key, told))
    if not options.dry_run:
        made = {str(key) for key in keys}
        for run in runs.values():
            if not made.isdisjoint(run.artifacts.values()):
                records.publish(place, store, run.id)
    print(f"{len(keys)} artifacts, {total} to {place.url}")
    return Exit.DONE


def pull_(options: Namespace) -> int:
    """Bring artifacts into the store."""
    words = split_words(options)
    place, store = place_of(options)
    keys = planned = planned_keys(options, words)
    if words:
        runs = {**records.runs(place), **history.runs(store.root)}
        keys = choose(words, planned, runs, [*planned, *remote_keys(place)])
    copies = copies_of(place, keys, warn)
    here = [key for key in keys if store.problem(key) is None]
    absent = [key for key in keys if key not in here and not copies[key]]
    lines = {key: "is here" for key in here} | {key: f"is not at {place.url}" for key in absent}
    if not options.dry_run and len(lines) < len(keys):
        store.open()
    sizes = ((key, lines.get(key) or copies[key][0].bytes) for key in keys)
    total = _move(options, "pull", sizes, lambda key, told: pull(place, store, key, told))
    print(f"{len(keys)} artifacts, {total} from {place.url}, {len(absent)} not there")
    return Exit.FAILED if words and absent else Exit.DONE


def _move(
    options: Namespace, verb: str, sizes: Iterable[tuple[Key, int | str]], move: Callable[[Key, Told], object]
) -> str:
    """Move what has a size, of the others say why not; returns how much it was, in words."""
    total = 0
    for key, size in sizes:
        if isinstance(size, str):
            print(f"{key}: {size}")
            continue
        total += size
        if not options.dry_run:
            with telling(str(key), size) as told:
                move(key, told)
        print(f"{key}: {shown_bytes(size)} {'would be ' if options.dry_run else ''}{verb}ed")
    return f"{shown_bytes(total)} {f'to {verb}' if options.dry_run else f'{verb}ed'}"


def remote(options: Namespace) -> int:
    """Show what is here, what is there, and how much it is."""
    words = split_words(options)
    if words not in ([], ["status"]):
        raise ConfigError([Problem("remote", " ".join(words), "unknown", "type: grpoflow remote status")])
    place, store = place_of(options)
    planned = planned_keys(options)
    copies = copies_of(place, planned, warn)
    artifacts, recorded = len(remote_keys(place)), len(records.last_told(place))
    if options.json:
        rows = [
            {
                "artifact": str(key),
                "here": store.problem(key) is None,
                "there": bool(found),
                "bytes": found[0].bytes if found else None,
            }
            for key, found in copies.items()
        ]
        held = {"url": place.url, "artifacts": artifacts, "runs": recorded}
        print(json.dumps({"configuration": rows, "remote": held}, indent=1))
        return Exit.DONE
    table = Table(title=f"this configuration · remote {place.url} · store {store.root}", title_justify="left")
    for column in ("stage", "here", "there", "bytes", "artifact"):
        table.add_column(column)
    for key, found in copies.items():
        here = "whole" if store.problem(key) is None else ""
        size = shown_bytes(found[0].bytes) if found else ""
        table.add_row(key.stage, here, "whole" if found else "", size, str(key))
    console().print(table)
    print(f"in all: {artifacts} artifacts, {recorded} runs at {place.url}")
    return Exit.DONE


def split_words(options: Namespace) -> list[str]:
    """The words that are no overrides; those go to the overrides."""
    options.overrides = [*(word for word in options.words if "=" in word), *options.overrides]
    return [word for word in options.words if "=" not in word]


def place_of(options: Namespace) -> tuple[Place, Store]:
    """The remote and the store that the overrides name.

    Raises:
        ConfigError: they name no remote.
        RemoteError: it does not answer.
    """
    config = load(options.overrides, options.config_dir)
    place = open_place(config.remote)
    place.tell(warn)
    signals.install()  # ^C does not wait for answers that are still to come
    place.briefly().list(ROOM)  # nobody waits long for a remote that does not answer at all
    return place, Store(Path(config.store).absolute())


def planned_keys(options: Namespace, words: Sequence[str] | None = None) -> list[Key]:
    """The artifacts that the configuration plans; with words, where one of them is a stage."""
    if words and not set(words) & set(VERSIONS):
        return []
    return [spec.key for spec in prepare_plan(options.overrides, options.config_dir)[0].specs]


@contextmanager
def telling(what: str, total: int) -> Iterator[Told]:
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
