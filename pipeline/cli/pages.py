"""`grpoflow ui` and `watch`: live views of runs in a browser and in a terminal."""

import contextlib
import signal
from argparse import Namespace
from dataclasses import asdict

from pipeline.cli.command import Bounded, Commands, add_run, store_of
from pipeline.errors import Exit
from pipeline.terminal import as_json, console
from pipeline.ui.watch import choose, follow, rows, view


def register(commands: Commands) -> None:
    """Add `ui` and `watch`."""
    pages = "show runs, their live reports and sweeps in a browser; listens on loopback only"
    parser = commands.add("ui", ui, pages, "--port 0")
    parser.add_argument(
        "--port", type=Bounded(int, 0, 65535), default=8082, metavar="N", help="0: any free port"
    )

    parser = commands.add("watch", watch, "show the progress of a run until it ends", "last --once")
    parser.add_argument("--once", action="store_true", help="show the current state and exit")
    parser.add_argument(
        "--json", action="store_true", help="print the current state as JSON, a row per stage"
    )
    add_run(parser, "the newest live run")


def ui(options: Namespace) -> int:
    """Serve the store's pages until interrupted."""
    from pipeline.ui.access import Access  # imports of the report take 0.3 s, which watch does not need
    from pipeline.ui.server import LOOPBACK, listen

    root, access = store_of(options).root, Access()
    with listen(root, access, options.port) as server:
        url = f"http://{LOOPBACK}:{server.server_address[1]}/?token={access.token}"
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"runs and live reports of {root}: {url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return Exit.DONE


def watch(options: Namespace) -> int:
    """Show a run until it ends; with --once, show its current state."""
    root = store_of(options).root
    record = choose(root, options.run)
    if options.json:
        stages = [asdict(row) for row in rows(root, record)]
        print(as_json({"run": record.id, "state": record.state, "stages": stages}))
        return Exit.DONE
    out = console()
    if options.once or record.state != "running":
        out.print(view(record, rows(root, record)))
        return Exit.DONE
    try:
        record = follow(root, record, out)
    except KeyboardInterrupt:  # stops watching, not the run
        return 128 + signal.SIGINT
    return Exit.DONE if record.state == "finished" else Exit.FAILED
