"""`grpoflow pull`: from the remote into the store."""

from __future__ import annotations

from argparse import Namespace

from pipeline.cli.command import Commands
from pipeline.cli.push import WORDS
from pipeline.cli.remote import place_of, planned_keys, split_words, telling
from pipeline.errors import Exit
from pipeline.store import history
from pipeline.store.remote import records
from pipeline.store.remote.choose import choose, copies_of, remote_keys
from pipeline.store.remote.pull import pull
from stages.base.files import shown_bytes


def register(commands: Commands) -> None:
    """Add `pull`."""
    parser = commands.add(
        "pull", pull_, "bring artifacts from the remote; without words, this configuration's",
        "last remote=s3://bucket/team", "export model=qwen2_5_7b --dry-run",
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="RUN|STAGE|FINGERPRINT", help=WORDS)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be brought")


def pull_(options: Namespace) -> int:
    """Bring artifacts into the store."""
    words = split_words(options)
    place, store = place_of(options)
    planned = planned_keys(options, words)
    keys = planned
    if words:
        runs = {**records.runs(place), **history.runs(store.root)}
        keys = choose(words, planned, runs, [*planned, *remote_keys(place)])
    total, absent = 0, 0
    for key, copies in copies_of(place, keys).items():
        if store.problem(key) is None:
            print(f"{key}: is here")
        elif not copies:
            absent += 1
            print(f"{key}: is not at {place.url}")
        else:
            total += copies[0].bytes
            size = shown_bytes(copies[0].bytes)
            if not options.dry_run:
                store.open()
                with telling(str(key), copies[0].bytes) as told:
                    pull(place, store, key, told)
            print(f"{key}: {size} {'would be pulled' if options.dry_run else 'pulled'}")
    told_total = f"{shown_bytes(total)} {'to pull' if options.dry_run else 'pulled'}"
    print(f"{len(keys)} artifacts, {told_total} from {place.url}, {absent} not there")
    return Exit.FAILED if words and absent else Exit.DONE
