"""`grpoflow diff`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from pipeline.cli.command import Commands, store_of
from pipeline.errors import Exit
from pipeline.plan import explain
from pipeline.store import history
from pipeline.terminal import console


def register(commands: Commands) -> None:
    """Options of `diff`."""
    parser = commands.add(
        "diff", diff, "show how two runs differ in configuration and result", "20261121-0801 last"
    )
    parser.add_argument("run", metavar="RUN_A")
    parser.add_argument("other", metavar="RUN_B")


def diff(options: Namespace) -> int:
    """Differences between two runs: configuration, then result."""
    root = store_of(options).root
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
    return Exit.DONE


def _shown(side: Mapping[str, Any], key: str) -> str:
    return str(side[key]) if key in side else "—"
