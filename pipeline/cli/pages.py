"""`grpoflow ui` and `watch`: runs while they go on, in a browser and in a terminal."""

import json
import signal
import sys
from argparse import Namespace
from dataclasses import asdict

from pipeline.cli.command import Commands, add_run, store_of
from pipeline.errors import Exit
from pipeline.terminal import console
from pipeline.ui.watch import choose, follow_live, follow_plainly, rows, view


def register(commands: Commands) -> None:
    """Add the commands that show living runs."""
    pages = "serve Luigi's task pages, the runs and their live reports on loopback"
    parser = commands.add("ui", ui, pages, "--port 0 --open")
    parser.add_argument("--port", type=int, default=8082, metavar="N", help="0: any that is free")
    parser.add_argument(
        "--socket", metavar="PATH", help="a Unix socket instead of a port: the kernel opens it to you alone"
    )
    parser.add_argument("--cards", type=int, metavar="N", help="cards of this machine (default: found)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")

    parser = commands.add("watch", watch, "show a run while it goes on, until it ends", "last --once")
    parser.add_argument("--once", action="store_true", help="show it as it is now and end")
    parser.add_argument("--json", action="store_true", help="for programs: as it is now, a row per stage")
    add_run(parser, "the newest living one")


def ui(options: Namespace) -> int:
    """Serve the pages until interrupted."""
    from pipeline.ui.server import ui as serve  # here: watch needs no server

    return serve(options)


def watch(options: Namespace) -> int:
    """Show a run until it ends; with --once, show it as it is now."""
    root = store_of(options).root
    record = choose(root, options.run)
    if options.json:
        stages = [asdict(row) for row in rows(root, record)]
        print(json.dumps({"run": record.id, "state": record.state, "stages": stages}, indent=1))
        return Exit.DONE
    terminal = sys.stdout.isatty()
    out = console()
    if options.once or record.state != "running":
        out.print(view(record, rows(root, record)))
        return Exit.DONE
    try:
        record = follow_live(root, record, out) if terminal else follow_plainly(root, record, out)
    except KeyboardInterrupt:  # of the watching, not of the run
        return 128 + signal.SIGINT
    return Exit.DONE if record.state == "finished" else Exit.FAILED
