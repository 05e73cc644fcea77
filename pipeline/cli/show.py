"""`grpoflow show`."""

from __future__ import annotations

import time
from argparse import Namespace

from pipeline.cli.command import Commands, store_of
from pipeline.errors import Exit
from pipeline.store import history


def register(commands: Commands) -> None:
    """Options of `show`."""
    parser = commands.add("show", show, "show one run: settings, state, result, artifacts", "last")
    parser.add_argument("run", metavar="RUN", help="id, beginning of an id, name, or last")


def show(options: Namespace) -> int:
    """One run in full."""
    store = store_of(options)
    record = history.find(store.root, options.run)
    print(f"run        {record.id}{f' ({record.name})' if record.name else ''}")
    print(f"started    {time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(record.started))}")
    print(f"state      {record.told}, took {record.took or 'unknown'}")
    print(f"overrides  {' '.join(record.overrides) or '(none)'}")
    if record.message:
        print(f"message    {record.message}")
    for key, value in record.result.items():
        print(f"result     {key}={value}")
    for artifact in record.artifacts.values():
        there = "" if (store.root / artifact / "manifest.json").exists() else "  (not there)"
        print(f"artifact   {store.root / artifact}{there}")
    return Exit.DONE
