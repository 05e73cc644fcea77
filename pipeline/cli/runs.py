"""`grpoflow runs`, `show` and `diff`: the recorded runs of a store."""

import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from pipeline.cli.command import Commands, add_json, store_of
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.run import summary
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.terminal import Table, as_json, console
from stages.base.keys import flat
from stages.report.text import number

NEWEST = 20
"""Number of runs that are listed without --all."""


def register(commands: Commands) -> None:
    """Add the commands that read a store's runs."""
    parser = commands.add(
        "runs",
        runs,
        "list the newest runs of the store; pin or name them",
        "--pin last",
    )
    parser.add_argument("--all", action="store_true", help=f"list all runs, not only the newest {NEWEST}")
    add_json(parser, "all runs")
    parser.add_argument("--remote", action="store_true", help="runs recorded on the remote, of all users")
    parser.add_argument("--pin", metavar="RUN", help="never remove its artifacts by gc")
    parser.add_argument("--unpin", metavar="RUN", help="remove the pin")
    parser.add_argument(
        "--name", metavar="RUN=NAME", help="name a run, which gc then retains; RUN= removes the name"
    )

    parser = commands.add("show", show, "show one run: overrides, state, result, artifacts", "last")
    parser.add_argument("run", metavar="RUN", help="id, beginning of an id, name, or last")
    add_json(parser, "also the entire configuration")

    parser = commands.add(
        "diff", diff, "show how two runs differ in configuration and result", "20261121-0801 last"
    )
    parser.add_argument("run", metavar="RUN_A")
    parser.add_argument("other", metavar="RUN_B")
    add_json(parser, "key -> both values")


def runs(options: Namespace) -> int:
    """List runs, or pin, unpin or name one."""
    source: Any = history
    where: Any = store_of(options).root
    if options.remote:
        from pipeline.cli.remote import connect  # imported late: it loads fsspec
        from pipeline.store.remote import records as source

        where, _ = connect(options)
    for event, selector in (("pinned", options.pin), ("unpinned", options.unpin)):
        if selector is not None:
            source.record(where, history.select(source.runs(where), selector).id, event)
    if options.name is not None:
        selector, name = _parse_name(options.name)
        source.record(where, history.select(source.runs(where), selector).id, "named", name=name)
    records = list(source.runs(where).values())
    shown = records if options.all else records[-NEWEST:]
    if options.json:
        print(as_json([asdict(record) for record in records]))
        return Exit.DONE
    table = Table("run", "state", "took", "accuracy", "overrides", "kept")
    for record in shown:
        retention = ", ".join(filter(None, [record.name, "pinned" if record.pinned else None]))
        overrides = " ".join([record.options, *record.overrides]).strip()
        table.add_row(record.id, record.outcome, record.duration, _accuracy(record), overrides, retention)
    if not records:
        print("no runs are recorded")
        return Exit.DONE
    console().print(table)
    if len(records) > len(shown):
        print(f"{len(records) - len(shown)} older runs are not shown: --all")
    return Exit.DONE


def _parse_name(text: str) -> tuple[str, str]:
    """Return run and name of --name RUN=NAME; raise ConfigError if it is malformed."""
    selector, sign, name = text.partition("=")
    if not sign:
        rule = "must be RUN=NAME, or RUN= to remove the name"
        raise ConfigError([Problem("--name", text, rule)])
    if name == "last" or "=" in name:
        rule = "a name may neither be last nor contain ="
        raise ConfigError([Problem("--name", name, rule, "choose another")])
    return selector, name


def show(options: Namespace) -> int:
    """Show all recorded properties of a run."""
    root = store_of(options).root
    record = history.find(root, options.run)
    if options.json:
        print(as_json(asdict(record)))
        return Exit.DONE
    print(f"run        {record.id}{f' ({record.name})' if record.name else ''}")
    print(f"started    {time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(record.started))}")
    print(f"state      {record.outcome}, took {record.duration or 'unknown'}")
    print(f"overrides  {' '.join(record.overrides) or '(none)'}")
    if record.options:
        print(f"options    {record.options}")
    if record.message:
        print(f"message    {record.message}")
    for key, value in record.result.items():
        print(f"result     {key}={value}")
    for artifact in record.artifacts.values():
        absent = "" if (root / artifact / "manifest.json").exists() else "  (not there)"
        print(f"artifact   {root / artifact}{absent}")
    if "tokenize" in record.artifacts:
        summary.print_data(root / record.artifacts["tokenize"], console())
    return Exit.DONE


def diff(options: Namespace) -> int:
    """Show how two runs differ: configuration, then result."""
    root = store_of(options).root
    records = [history.find(root, selector) for selector in (options.run, options.other)]
    table = Table("", *(record.id for record in records))
    sides = [{**flat(record.config), **flat(record.result, "result")} for record in records]
    keys = sorted(sides[0].keys() | sides[1].keys(), key=lambda key: (key.startswith("result"), key))
    if options.json:
        pairs = {key: [side.get(key) for side in sides] for key in keys}
        print(as_json({key: pair for key, pair in pairs.items() if pair[0] != pair[1]}))
        return Exit.DONE
    for key in keys:
        left, right = (str(side[key]) if key in side else "—" for side in sides)
        if left != right:
            table.add_row(key, left, right)
    if table.row_count:
        console().print(table)
    else:
        print("no differences")
    return Exit.DONE


def _accuracy(record: Record) -> str:
    before, after = (number(record.result.get(f"accuracy_{stage}")) for stage in ("sft", "grpo"))
    return "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
