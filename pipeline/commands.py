"""What each subcommand of `grpoflow` does; returns its exit code."""

from __future__ import annotations

import functools
import json
import logging
import sys
import time
import webbrowser
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from warnings import filterwarnings

from rich.table import Table

from launch import environment
from pipeline import cautions, collect, engines, explain, history, ui_address
from pipeline.config import load
from pipeline.errors import ConfigError, Problem, StoreError
from pipeline.history import Record
from pipeline.progress import console, elapsed
from pipeline.run import prepare_plan
from pipeline.store import Store
from pipeline.verify import artifacts, checkpoints, quarantine
from pipeline.verify import verify as find_damage
from stages.report.text import number

EXIT_DONE, EXIT_DAMAGED, EXIT_PENDING = 0, 1, 10


def run(options: Namespace) -> int:
    """Run through Luigi's own command line: one code path with `luigi --module pipeline RunGRPO`."""
    if options.dry_run:
        return dry_run(options)
    from luigi.cmdline import luigi_run

    # pipeline itself is imported already, without its tasks
    arguments = ["--module", "pipeline.tasks", "RunGRPO", f"--overrides={json.dumps(options.overrides)}"]
    arguments.append(f"--workers={options.workers}")
    if options.config_dir is not None:
        arguments.append(f"--config-dir={options.config_dir}")
    place = _use_ui(options) if options.ui else None
    try:
        luigi_run(arguments)
    except SystemExit as exit:
        code = int(exit.code or 0)
        if code != EXIT_DONE:
            _tell_what_luigi_left(place)
        return code
    return EXIT_DONE


def _use_ui(options: Namespace) -> ui_address.Place:
    """Let Luigi ask the scheduler of the store's ui, with the key that it takes.

    Raises:
        ConfigError: there is none that would do.
    """
    import luigi.rpc
    from luigi.configuration import get_config

    config = load(options.overrides, options.config_dir)
    place = ui_address.address(Path(config.store).absolute(), config.cards)
    luigi.rpc.HAS_REQUESTS = True
    luigi.rpc.RequestsFetcher = functools.partial(
        ui_address.Fetcher, place
    )  # Luigi knows no other way to say
    get_config().set("core", "local_scheduler", "false")
    get_config().set("core", "scheduler_url", "http://localhost")  # the fetcher knows where it is
    get_config().set("core", "rpc-retry-wait", "2")
    filterwarnings("ignore", ".*rpc_retry_wait.*")  # Luigi reads it, but not as a parameter of core
    logging.getLogger("luigi-interface").addFilter(
        lambda record: not (record.exc_info and isinstance(record.exc_info[1], luigi.rpc.RPCError))
    )
    return place


def _tell_what_luigi_left(place: ui_address.Place | None) -> None:
    """Why a run ends without what it was to build, where no stage of it has failed."""
    from pipeline.tasks import adopted

    for run in adopted():
        missing = [spec for spec in run.built.specs if not run.is_complete(spec.name)]
        if not missing or run.has_told_its_end():
            continue
        needed = max(spec.workers for spec in missing)
        reason = "its scheduler gave this run nothing to do" if place is None else None
        run.give_up(missing[0].name, reason or ui_address.obstacle(place, needed))  # type: ignore[arg-type]


def dry_run(options: Namespace) -> int:
    """Write what an engine would be started with; start nothing."""
    from pipeline.engines import program

    planned, store = prepare_plan(options.overrides, options.config_dir)
    if all(spec.engine is None for spec in planned.specs):
        rule = "is for engines that are programs of their own; engine=local has no files to write"
        raise ConfigError([Problem("--dry-run", None, rule, "see grpoflow plan --json for its commands")])
    scripts, ready = program.write_files(planned, store)
    for note in planned.notes:
        print(f"note: {note}")
    if not ready:
        print("note: its inputs are not in the store yet; `grpoflow run` makes them before the engine starts")
    for script in scripts:
        print(script)
    return EXIT_DONE


def plan(options: Namespace) -> int:
    """What a run would do, and why."""
    planned, store = prepare_plan(options.overrides, options.config_dir, options.deep)
    rows = explain.explain(planned, store, environment.problems())
    roles = engines.of(planned.config.engine.name).memory(planned.config)
    warnings = cautions.warnings(planned, store, roles)
    if options.json:
        print(json.dumps(explain.as_json(planned, rows, warnings, roles), indent=1))
    else:
        explain.show(planned, rows, console(), warnings, roles)
    return EXIT_PENDING if any(row.state != "CACHED" for row in rows) else EXIT_DONE


def sweep(options: Namespace) -> int:
    """Many points as one graph."""
    from pipeline.sweep import expand

    return expand(options.overrides, options.cards, options.plan, options.config_dir)


def verify(options: Namespace) -> int:
    """Check every committed artifact of the store, and what unfinished attempts go on from."""
    store = _store(options)
    total, unfinished, found = len(artifacts(store)), len(checkpoints(store)), []
    for finding in find_damage(store, options.deep, lambda path: _tell(f"checking {path}")):
        found.append(finding)
        print(f"damaged {finding.path}: {finding.problem}")
        if options.repair:
            print(f"  moved to {quarantine(store, finding)}; the next run does that work again")
    more = f" and {unfinished} checkpoints of unfinished attempts" if unfinished else ""
    print(f"{total} artifacts{more} checked{' by digest' if options.deep else ''}, {len(found)} damaged")
    return EXIT_DAMAGED if found and not options.repair else EXIT_DONE


def gc(options: Namespace) -> int:
    """List, and with --delete remove, what no kept run needs."""
    store = _store(options)
    if not store.root.is_dir():
        print(f"{store.root}: no store there, nothing to collect")
        return EXIT_DONE
    garbage = collect.collect(store, options.keep, options.delete)
    for item in garbage:
        print(f"{item.kind:10} {item.bytes / 2**20:10.1f} MiB  {item.path}")
    total = sum(item.bytes for item in garbage) / 2**20
    done = "removed" if options.delete else "could be removed (nothing was; add --delete)"
    print(f"{len(garbage)} directories, {total:.1f} MiB {done}")
    unknown = collect.strangers(store)
    if unknown:
        print(f"{len(unknown)} artifacts that no recorded run made are left alone, {unknown[0]} among them")
    return EXIT_DONE


def runs(options: Namespace) -> int:
    """List runs, or pin, unpin or name one."""
    root = _store(options).root
    for event, wanted in (("pinned", options.pin), ("unpinned", options.unpin)):
        if wanted is not None:
            history.record(root, history.find(root, wanted).id, event)
    if options.name is not None:
        wanted, _, name = options.name.partition("=")
        if not name:
            raise ConfigError([Problem("--name", options.name, "must be RUN=NAME")])
        history.record(root, history.find(root, wanted).id, "named", name=name)
    known = list(history.runs(root).values())
    if options.json:
        print(json.dumps([asdict(record) for record in known], indent=1))
        return EXIT_DONE
    table = Table()
    for column in ("run", "state", "took", "accuracy", "overrides", "kept"):
        table.add_column(column, overflow="fold")
    for record in known:
        kept = ", ".join(filter(None, [record.name, "pinned" if record.pinned else None]))
        table.add_row(
            record.id, _state(record), _took(record), _accuracy(record), " ".join(record.overrides), kept
        )
    console().print(table)
    return EXIT_DONE


def show(options: Namespace) -> int:
    """One run in full."""
    store = _store(options)
    record = history.find(store.root, options.run)
    print(f"run        {record.id}{f' ({record.name})' if record.name else ''}")
    print(f"started    {time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(record.started))}")
    print(f"state      {_state(record)}, took {_took(record) or 'unknown'}")
    print(f"overrides  {' '.join(record.overrides) or '(none)'}")
    if record.message:
        print(f"message    {record.message}")
    for key, value in record.result.items():
        print(f"result     {key}={value}")
    for artifact in record.artifacts.values():
        there = "" if (store.root / artifact / "manifest.json").exists() else "  (not there)"
        print(f"artifact   {store.root / artifact}{there}")
    return EXIT_DONE


def report(options: Namespace) -> int:
    """Path of a run's report; opens it when asked to."""
    root = _store(options).root
    record = history.find(root, options.run or "last")
    page = root / record.artifact("report") / "index.html"
    if not page.exists():
        hint = f"`grpoflow watch {record.id}` shows how far it came"
        raise StoreError(
            f"{page}: not there (run {record.id}: {_state(record)}; the report is made last); {hint}"
        )
    print(page)
    if options.open and not webbrowser.open(page.as_uri()):
        raise StoreError(f"{page}: no browser could be started; open it in one yourself")
    return EXIT_DONE


def diff(options: Namespace) -> int:
    """Differences between two runs: configuration, then result."""
    root = _store(options).root
    records = [history.find(root, wanted) for wanted in (options.run, options.other)]
    table = Table()
    for column in ("", *(record.id for record in records)):
        table.add_column(column, overflow="fold")
    sides = [{**explain.flat(record.config), **explain.flat(record.result, "result")} for record in records]
    for key in sorted(sides[0].keys() | sides[1].keys(), key=lambda key: (key.startswith("result"), key)):
        left, right = (_shown(side, key) for side in sides)
        if left != right:
            table.add_row(key, left, right)
    if table.row_count:
        console().print(table)
    else:
        print("no differences")
    return EXIT_DONE


def _store(options: Namespace) -> Store:
    return Store(Path(load(options.overrides, options.config_dir).store))


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _shown(side: Mapping[str, Any], key: str) -> str:
    return str(side[key]) if key in side else "—"


def _state(record: Record) -> str:
    return f"{record.state} in {record.failed_stage}" if record.failed_stage else record.state


def _took(record: Record) -> str:
    return "" if record.ended is None else elapsed(record.ended - record.started)


def _accuracy(record: Record) -> str:
    before, after = (number(record.result.get(f"accuracy_{stage}")) for stage in ("sft", "grpo"))
    return "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
