"""`grpoflow watch`."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from pathlib import Path

from rich.console import Console

from pipeline.cli.command import Commands, add_run
from pipeline.config.load import load
from pipeline.errors import Exit
from pipeline.ui.watch import choose, follow_live, follow_plainly, rows, view


def register(commands: Commands) -> None:
    """Options of `watch`."""
    parser = commands.add("watch", watch, "show a run while it goes on, until it ends", "last --once")
    parser.add_argument("--once", action="store_true", help="show it as it is now and end")
    add_run(parser, "the newest living one")


def watch(options: Namespace) -> int:
    """Show a run until it ends; with --once, show it as it is now."""
    root = Path(load(options.overrides, options.config_dir).store).absolute()
    record = choose(root, options.run)
    terminal = sys.stdout.isatty()
    console = Console(highlight=False, markup=False, emoji=False, width=None if terminal else 160)
    if options.once or record.state != "running":
        console.print(view(record, rows(root, record)))
        return Exit.DONE
    try:
        record = follow_live(root, record, console) if terminal else follow_plainly(root, record, console)
    except KeyboardInterrupt:  # of the watching, not of the run
        return 128 + signal.SIGINT
    return Exit.DONE if record.state == "finished" else Exit.FAILED
