"""`grpoflow runs`."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict

from rich.table import Table

from pipeline.cli.command import Commands, store_of
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.terminal import console
from stages.report.text import number


def register(commands: Commands) -> None:
    """Options of `runs`."""
    parser = commands.add("runs", runs, "list the runs of the store; pin or name one", "--pin last")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--pin", metavar="RUN", help="keep its artifacts whatever gc is told")
    parser.add_argument("--unpin", metavar="RUN", help="give that up")
    parser.add_argument("--name", metavar="RUN=NAME", help="give a run a name; named runs are kept too")


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
    known = list(history.runs(root).values())
    if options.json:
        print(json.dumps([asdict(record) for record in known], indent=1))
        return Exit.DONE
    table = Table()
    for column in ("run", "state", "took", "accuracy", "overrides", "kept"):
        table.add_column(column, overflow="fold")
    for record in known:
        kept = ", ".join(filter(None, [record.name, "pinned" if record.pinned else None]))
        table.add_row(
            record.id, record.told, record.took, _accuracy(record), " ".join(record.overrides), kept
        )
    console().print(table)
    return Exit.DONE


def _accuracy(record: Record) -> str:
    before, after = (number(record.result.get(f"accuracy_{stage}")) for stage in ("sft", "grpo"))
    return "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
