"""`grpoflow push`, `pull` and `remote`: copy artifacts to and from a remote, and list what it has."""

import contextlib
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.cli.command import Commands
from pipeline.config.load import load
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.plan.shared import open_remote, warn
from pipeline.run import signals
from pipeline.run.run import prepare_plan
from pipeline.store import history
from pipeline.store.remote import RUNS, records
from pipeline.store.remote.copies import directories, find
from pipeline.store.remote.remote import Remote
from pipeline.store.remote.transfer import pull, push
from pipeline.store.store import MANIFEST, Key, Manifest, Store
from pipeline.store.verify import artifacts
from pipeline.terminal import Table, as_json, console
from stages.base.files import shown_bytes
from stages.catalog import STAGES

WORDS = "a stage of this configuration, or a run (id, beginning, name or last)"


@dataclass(frozen=True)
class Copied:
    """An artifact that `push` or `pull` treated."""

    artifact: str
    state: str
    """pushed, pulled, there (was on the remote), here (was in the store) or absent (from the remote)."""
    bytes: int
    """Size of what was copied."""


def register(commands: Commands) -> None:
    """Add `push`, `pull` and `remote`."""
    default = " (default: those of this configuration)"
    for name, action, help, example in (
        ("push", push_, f"copy artifacts to the remote{default}", "convert tokenize model=qwen2_5_7b"),
        ("pull", pull_, f"copy artifacts from the remote{default}", "export model=qwen2_5_7b"),
    ):
        parser = commands.add(name, action, help, "last remote=s3://bucket/team", example)
        parser.add_argument("words", nargs="*", metavar="RUN|STAGE", help=WORDS)
        parser.add_argument("--json", action="store_true", help="machine-readable output: each artifact")
    help = "show which of this configuration's artifacts are on the remote"
    parser = commands.add("remote", remote_, help, "status remote=s3://bucket/team")
    parser.add_argument("words", nargs="*", metavar="status", help="the only choice: status")
    parser.add_argument("--json", action="store_true", help="machine-readable output: where each artifact is")


def push_(options: Namespace) -> int:
    """Copy artifacts and the records of their runs to the remote."""
    words = split_words(options)
    remote, store = connect(options)
    runs, planned, local = history.runs(store.root), _planned(options, words), _local_keys(store)
    keys = _choose(words, planned, runs, local) if words else [key for key in planned if key in local]
    copied: list[Copied] = []
    for key in keys:
        sent = push(remote, store, key)
        _add(copied, Copied(str(key), "pushed" if sent else "there", sent), options)
    pushed = {str(key) for key in keys}
    for run in runs.values():
        if not pushed.isdisjoint(run.artifacts.values()):
            records.publish(remote, store, run.id)
    _print_end(copied, f"to {remote.url}", remote, options)
    return Exit.DONE


def pull_(options: Namespace) -> int:
    """Copy artifacts into the store."""
    words = split_words(options)
    remote, store = connect(options)
    keys = planned = _planned(options, words)
    if words:
        runs = {**records.runs(remote), **history.runs(store.root)}
        keys = _choose(words, planned, runs, directories(remote))
    copies = find(remote, keys, warn)
    copied: list[Copied] = []
    for key in keys:
        if store.problem(key) is None:
            state, size = "here", 0
        elif not copies[key]:
            state, size = "absent", 0
        else:
            state, size = "pulled", copies[key][0].bytes
            store.open()
            pull(remote, store, key)
        _add(copied, Copied(str(key), state, size), options)
    absent = sum(each.state == "absent" for each in copied)
    _print_end(copied, f"from {remote.url}, {absent} not there", remote, options)
    return Exit.FAILED if words and absent else Exit.DONE


def _add(copied: list[Copied], each: Copied, options: Namespace) -> None:
    """Add an artifact to `copied`, and print it unless the output is JSON."""
    copied.append(each)
    if not options.json:
        size = f"{shown_bytes(each.bytes)} " if each.bytes else "is "
        print(f"{each.artifact}: {size}{each.state}")


def _print_end(copied: Sequence[Copied], where: str, remote: Remote, options: Namespace) -> None:
    """Print the number and size of what was copied, or everything as JSON."""
    if options.json:
        print(as_json({"remote": remote.url, "artifacts": [asdict(each) for each in copied]}))
    else:
        print(f"{len(copied)} artifacts, {shown_bytes(sum(each.bytes for each in copied))} {where}")


def remote_(options: Namespace) -> int:
    """Show which artifacts are here and on the remote."""
    words = split_words(options)
    if words not in ([], ["status"]):
        raise ConfigError([Problem("remote", " ".join(words), "unknown", "type: grpoflow remote status")])
    remote, store = connect(options)
    copies = find(remote, _planned(options), warn)
    total, runs = len(directories(remote)), sum("+" not in name for name in remote.list(RUNS))
    rows = [
        (key, store.problem(key) is None, copies[key][0].bytes if copies[key] else None) for key in copies
    ]
    if options.json:
        names = ("artifact", "here", "there", "bytes")
        listed = [
            dict(zip(names, (str(key), here, size is not None, size), strict=True))
            for key, here, size in rows
        ]
        held = {"url": remote.url, "artifacts": total, "runs": runs}
        print(as_json({"configuration": listed, "remote": held}))
        return Exit.DONE
    table = Table(
        "stage", "here", "there", "bytes", "artifact",
        title=f"this configuration · remote {remote.url} · store {store.root}", title_justify="left",
    )  # fmt: skip
    for key, here, size in rows:
        there = ("", "") if size is None else ("complete", shown_bytes(size))
        table.add_row(key.stage, "complete" if here else "", *there, str(key))
    console().print(table)
    print(f"in all: {total} artifacts, {runs} runs at {remote.url}")
    return Exit.DONE


def split_words(options: Namespace) -> list[str]:
    """Return the arguments that are not overrides; move overrides among them to options.overrides."""
    options.overrides = [*(word for word in options.words if "=" in word), *options.overrides]
    return [word for word in options.words if "=" not in word]


def connect(options: Namespace) -> tuple[Remote, Store]:
    """Return the configured remote and the configured store."""
    config = load(options.overrides, options.config_dir)
    remote = open_remote(config.remote)
    signals.install()  # ^C does not wait for pending answers
    return remote, Store(Path(config.store).absolute())


def _planned(options: Namespace, words: Sequence[str] = ()) -> list[Key]:
    """Return the configuration's artifacts; none if there are arguments and none of them is a stage."""
    if words and not set(words) & set(STAGES):
        return []
    return [spec.key for spec in prepare_plan(options.overrides, options.config_dir)[0].specs]


def _local_keys(store: Store) -> list[Key]:
    keys = []
    for path in artifacts(store):
        with contextlib.suppress(StoreError):  # `grpoflow verify` reports it
            keys.append(Key(path.parent.name, Manifest.read(path / MANIFEST).fingerprint))
    return keys


def _choose(
    words: Sequence[str], planned: Sequence[Key], runs: Mapping[str, history.Record], known: Iterable[Key]
) -> list[Key]:
    """Return the artifacts that the arguments name; raise ConfigError if one of them names none."""
    chosen: list[Key] = []
    for word in words:
        keys = [key for key in planned if key.stage == word]
        if not keys:
            try:
                made = history.select(runs, word).artifacts.values()
            except ConfigError as error:
                rule = "is no stage of this configuration and no run"
                raise ConfigError([Problem("RUN|STAGE", word, rule, error.problems[0].remedy)]) from error
            keys = [key for key in known if str(key) in made]
        chosen += keys
    return list(dict.fromkeys(chosen))
