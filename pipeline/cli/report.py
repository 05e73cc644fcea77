"""`grpoflow report`."""

from __future__ import annotations

import webbrowser
from argparse import Namespace

from pipeline.cli.command import Commands, add_run, store_of
from pipeline.errors import Exit, StoreError
from pipeline.store import history


def register(commands: Commands) -> None:
    """Options of `report`."""
    parser = commands.add(
        "report", report, "print the path of a run's report; --open shows it in the browser", "last --open"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    add_run(parser, "last")


def report(options: Namespace) -> int:
    """Path of a run's report; opens it when asked to."""
    root = store_of(options).root
    record = history.find(root, options.run or "last")
    page = root / record.artifact("report") / "index.html"
    if not page.exists():
        hint = f"`grpoflow watch {record.id}` shows how far it came"
        raise StoreError(
            f"{page}: not there (run {record.id}: {record.told}; the report is made last); {hint}"
        )
    print(page)
    if options.open and not webbrowser.open(page.as_uri()):
        raise StoreError(f"{page}: no browser could be started; open it in one yourself")
    return Exit.DONE
