"""`grpoflow runs`, `show`, `diff` and `report`: what the store remembers of its runs."""

from __future__ import annotations

import json
import time
import webbrowser
from argparse import Namespace
from dataclasses import asdict

from rich.table import Table

from pipeline.cli.command import Commands, add_run, store_of
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.plan import explain
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.terminal import console
from stages.report.text import number


def register(commands: Commands) -> None:
    """Add the commands that read a store's runs."""
    parser = commands.add("runs", runs, "list the runs of the store; pin or name one", "--pin last")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--pin", metavar="RUN", help="keep its artifacts whatever gc is told")
    parser.add_argument("--unpin", metavar="RUN", help="give that up")
    parser.add_argument("--name", metavar="RUN=NAME", help="give a run a name; named runs are kept too")

    parser = commands.add("show", show, "show one run: settings, state, result, artifacts", "last")
    parser.add_argument("run", metavar="RUN", help="id, beginning of an id, name, or last")

    parser = commands.add(
        "diff", diff, "show how two runs differ in configuration and result", "20261121-0801 last"
    )
    parser.add_argument("run", metavar="RUN_A")
    parser.add_argument("other", metavar="RUN_B")

    parser = commands.add(
        "report", report, "print the path of a run's report; --open shows it in the browser", "last --open"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    add_run(parser, "last")


def runs(options: Namespace) -> int:
    """List runs, or pin, unpin or name one."""
    root = store_of(options).root
    for event, wanted in (("pinned", options.pin), ("unpinned", options.unpin)):
        if wanted is not None:
            history.record(root, history.find(root, wanted).id, event)
    if options.name is not None:
        wanted, _, name = options.name.partition("=")
        if not name:
            raise ConfigError([Problem("--name", options.name, "must be RUN=NAME")])
        history.record(root, history.find(root, wanted).id, "named", name=name)
    records = list(history.runs(root).values())
    if options.json:
        print(json.dumps([asdict(record) for record in records], indent=1))
        return Exit.DONE
    table = _table("run", "state", "took", "accuracy", "overrides", "kept")
    for record in records:
        kept = ", ".join(filter(None, [record.name, "pinned" if record.pinned else None]))
        overrides = " ".join([record.target, *record.overrides]).strip()
        table.add_row(record.id, record.outcome, record.took, _accuracy(record), overrides, kept)
    console().print(table)
    return Exit.DONE


def show(options: Namespace) -> int:
    """Show one run in full."""
    root = store_of(options).root
    record = history.find(root, options.run)
    print(f"run        {record.id}{f' ({record.name})' if record.name else ''}")
    print(f"started    {time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(record.started))}")
    print(f"state      {record.outcome}, took {record.took or 'unknown'}")
    print(f"overrides  {' '.join(record.overrides) or '(none)'}")
    if record.target:
        print(f"target     {record.target}")
    if record.message:
        print(f"message    {record.message}")
    for key, value in record.result.items():
        print(f"result     {key}={value}")
    for artifact in record.artifacts.values():
        absent = "" if (root / artifact / "manifest.json").exists() else "  (not there)"
        print(f"artifact   {root / artifact}{absent}")
    return Exit.DONE


def diff(options: Namespace) -> int:
    """Show how two runs differ: configuration, then result."""
    root = store_of(options).root
    records = [history.find(root, wanted) for wanted in (options.run, options.other)]
    table = _table("", *(record.id for record in records))
    sides = [{**explain.flat(record.config), **explain.flat(record.result, "result")} for record in records]
    for key in sorted(sides[0].keys() | sides[1].keys(), key=lambda key: (key.startswith("result"), key)):
        left, right = (str(side[key]) if key in side else "—" for side in sides)
        if left != right:
            table.add_row(key, left, right)
    if table.row_count:
        console().print(table)
    else:
        print("no differences")
    return Exit.DONE


def report(options: Namespace) -> int:
    """Print the path of a run's report; open it when asked to."""
    root = store_of(options).root
    record = history.find(root, options.run or "last")
    page = root / record.artifact("report") / "index.html"
    if not page.exists():
        hint = f"`grpoflow watch {record.id}` shows how far it came"
        raise StoreError(
            f"{page}: not there (run {record.id}: {record.outcome}; the report is made last); {hint}"
        )
    print(page)
    if options.open and not webbrowser.open(page.as_uri()):
        raise StoreError(f"{page}: no browser could be started; open it in one yourself")
    return Exit.DONE


def _table(*columns: str) -> Table:
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _accuracy(record: Record) -> str:
    before, after = (number(record.result.get(f"accuracy_{stage}")) for stage in ("sft", "grpo"))
    return "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
