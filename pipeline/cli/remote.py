"""`grpoflow push`, `pull` and `remote`: copy artifacts to and from a remote, and list what it has."""

import contextlib
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.cli.command import Commands, add_json
from pipeline.config.load import load
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.run.run import prepare_plan
from pipeline.run.sharing import open_remote, warn
from pipeline.store import history
from pipeline.store.remote import RUNS, records
from pipeline.store.remote.copies import directories, find
from pipeline.store.remote.remote import Remote
from pipeline.store.remote.transfer import pull, push
from pipeline.store.store import MANIFEST, Key, Manifest, Store
from pipeline.store.verify import artifacts
from pipeline.terminal import Column, Table, as_json, console, say
from stages.base.files import shown_bytes
from stages.catalog import STAGES

WORDS = "a stage of this configuration, or a run (id, beginning, name or last)"


def register(commands: Commands) -> None:
    """Add `push`, `pull` and `remote`."""
    default = " (default: those of this configuration)"
    for name, action, help, example in (
        ("push", push_, f"copy artifacts to the remote{default}", "convert tokenize model=qwen2_5_7b"),
        ("pull", pull_, f"copy artifacts from the remote{default}", "export model=qwen2_5_7b"),
    ):
        parser = commands.add(name, action, help, "last remote=s3://bucket/team", example)
        parser.add_argument("words", nargs="*", metavar="RUN|STAGE", help=WORDS)
        add_json(parser, "each artifact")
    help = "show which of this configuration's artifacts are on the remote"
    parser = commands.add("remote", remote_, help, "status remote=s3://bucket/team")
    parser.add_argument("words", nargs="*", metavar="status", help="the only choice: status")
    add_json(parser, "where each artifact is")


def push_(options: Namespace) -> int:
    """Copy artifacts and the records of their runs to the remote."""
    remote, store = connect(options)
    runs, local = history.runs(store.root), _local_keys(store)
    if options.words:
        keys, unknown = _choose(options, runs, local)
    else:
        keys, unknown = [key for key in _planned(options) if key in local], []
    there = set(map(str, directories(remote))) if unknown else set()
    rows = [_copied(options, name, "absent") for name in unknown if name not in there]
    for key in keys:
        sent = push(remote, store, key)
        rows.append(_copied(options, key, "pushed" if sent else "there", sent))
    pushed = {str(key) for key in keys}
    for run in runs.values():
        if not pushed.isdisjoint(run.artifacts.values()):
            records.publish(remote, store, run.id)
    return _end(options, rows, f"to {remote.url}", remote)


def pull_(options: Namespace) -> int:
    """Copy artifacts into the store."""
    remote, store = connect(options)
    if options.words:
        runs = {**records.runs(remote), **history.runs(store.root)}
        keys, unknown = _choose(options, runs, directories(remote))
    else:
        keys, unknown = _planned(options), []
    copies = find(remote, keys, warn)
    rows = [_copied(options, name, "absent") for name in unknown if not (store.root / name).is_dir()]
    for key in keys:
        if store.problem(key) is None:
            rows.append(_copied(options, key, "here"))
        elif not copies[key]:
            rows.append(_copied(options, key, "absent"))
        else:
            store.open()
            pull(remote, store, key)
            rows.append(_copied(options, key, "pulled", copies[key][0].bytes))
    return _end(options, rows, f"from {remote.url}", remote)


def _copied(options: Namespace, artifact: Key | str, state: str, size: int = 0) -> dict[str, Any]:
    """Print what happened to an artifact, unless the output is JSON, and return its entry in that.

    The state is pushed, pulled, there (was on the remote), here (was in the store) or absent (in neither).
    """
    if not options.json:
        say(f"{artifact}: {f'{shown_bytes(size)} ' if size else 'is '}{state}")
    return {"artifact": str(artifact), "state": state, "bytes": size}


def _end(options: Namespace, rows: Sequence[dict[str, Any]], where: str, remote: Remote) -> int:
    """Print the number and size of what was copied, or everything as JSON; return the exit code."""
    absent = sum(row["state"] == "absent" for row in rows)
    if options.json:
        print(as_json({"remote": remote.url, "artifacts": rows}))
    else:
        size = shown_bytes(sum(row["bytes"] for row in rows))
        say(f"{len(rows)} artifacts, {size} {where}, {absent} absent")
    return Exit.FAILED if options.words and absent else Exit.DONE


def remote_(options: Namespace) -> int:
    """Show which artifacts are here and on the remote."""
    if options.words not in ([], ["status"]):
        text, remedy = " ".join(options.words), "type: grpoflow remote status"
        raise ConfigError([Problem("remote", text, "unknown", remedy)])
    remote, store = connect(options)
    total, runs = len(directories(remote)), sum("+" not in name for name in remote.list(RUNS))
    rows: list[dict[str, Any]] = []
    for key, copies in find(remote, _planned(options), warn).items():
        size = copies[0].bytes if copies else None
        here = store.problem(key) is None
        rows.append({"artifact": str(key), "here": here, "there": size is not None, "bytes": size})
    if options.json:
        held = {"url": remote.url, "artifacts": total, "runs": runs}
        print(as_json({"configuration": rows, "remote": held}))
        return Exit.DONE
    title = f"this configuration · remote {remote.url} · store {store.root}"
    table = Table(["artifact", "here", "there", Column("bytes", "number")], title)
    for row in rows:
        marks = ["complete" if row[column] else "" for column in ("here", "there")]
        table.add(row["artifact"], *marks, shown_bytes(row["bytes"]) if row["there"] else "")
    console().print(table)
    say(f"in all: {total} artifacts, {runs} runs at {remote.url}")
    return Exit.DONE


def connect(options: Namespace) -> tuple[Remote, Store]:
    """Return the configured remote and the configured store."""
    config = load(options.overrides, options.config_dir)
    return open_remote(config.remote), Store(Path(config.store))


def _planned(options: Namespace) -> list[Key]:
    """Return the configuration's artifacts."""
    return [spec.key for spec in prepare_plan(options.overrides, options.config_dir)[0].specs]


def _local_keys(store: Store) -> list[Key]:
    keys = []
    for path in artifacts(store):
        with contextlib.suppress(StoreError):  # `grpoflow verify` reports it
            keys.append(Key(path.parent.name, Manifest.read(path / MANIFEST).fingerprint))
    return keys


def _choose(
    options: Namespace, runs: Mapping[str, history.Record], known: Iterable[Key]
) -> tuple[list[Key], list[str]]:
    """Return the artifacts that the arguments name, and those of runs that are not among `known`."""
    planned = _planned(options) if set(options.words) & set(STAGES) else []
    chosen: list[Key] = []
    unknown: list[str] = []
    for word in options.words:
        keys = [key for key in planned if key.stage == word]
        if not keys:
            try:
                made = history.select(runs, word).artifacts.values()
            except ConfigError as error:
                rule = "is no stage of this configuration and no run"
                raise ConfigError([Problem("RUN|STAGE", word, rule, error.problems[0].remedy)]) from error
            keys = [key for key in known if str(key) in made]
            unknown += sorted(set(made) - set(map(str, keys)))
        chosen += keys
    return list(dict.fromkeys(chosen)), list(dict.fromkeys(unknown))
