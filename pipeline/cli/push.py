"""`grpoflow push`: from the store to its remote."""

from __future__ import annotations

from argparse import Namespace

from pipeline.cli.command import Commands
from pipeline.cli.remote import place_of, planned_keys, split_words, telling
from pipeline.errors import Exit
from pipeline.store import history
from pipeline.store.remote import records
from pipeline.store.remote.choose import choose, local_keys
from pipeline.store.remote.push import is_there, push
from stages.base.files import shown_bytes

WORDS = (
    "a stage of this configuration, a run (id, its beginning, name or last) or the beginning of a fingerprint"
)


def register(commands: Commands) -> None:
    """Add `push`."""
    parser = commands.add(
        "push", push_, "bring artifacts to the remote; without words, this configuration's",
        "last remote=s3://bucket/team", "convert tokenize model=qwen2_5_7b --dry-run",
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="RUN|STAGE|FINGERPRINT", help=WORDS)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be brought")


def push_(options: Namespace) -> int:
    """Bring artifacts and the records of their runs to the remote."""
    words = split_words(options)
    place, store = place_of(options)
    known = local_keys(store)
    planned = planned_keys(options, words)
    runs = history.runs(store.root)
    keys = choose(words, planned, runs, known) if words else [key for key in planned if key in known]
    total = 0
    for key in keys:
        files = store.manifest(key).files.values()
        size = sum(entry["size"] for entry in files)
        if is_there(place, key):
            print(f"{key}: is there")
            continue
        total += size
        if options.dry_run:
            print(f"{key}: {shown_bytes(size)} would be pushed")
            continue
        with telling(str(key), size) as told:
            push(place, store, key, told)
        print(f"{key}: {shown_bytes(size)} pushed")
    if not options.dry_run:
        made = {str(key) for key in keys}
        for run in runs.values():
            if not made.isdisjoint(run.artifacts.values()):
                records.publish(place, store, run.id)
    told_total = f"{shown_bytes(total)} {'to push' if options.dry_run else 'pushed'}"
    print(f"{len(keys)} artifacts, {told_total} to {place.url}")
    return Exit.DONE
