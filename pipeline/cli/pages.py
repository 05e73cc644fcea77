"""`grpoflow report`, `ui` and `watch`: pages of runs, and live views of them."""

import contextlib
import hashlib
import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.cli.command import Commands, add_json, add_run, bounded, store_of
from pipeline.errors import Exit, StoreError, store_errors
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.terminal import as_json, console, say
from pipeline.ui.watch import choose, follow, left_of_run, rows, view


def register(commands: Commands) -> None:
    """Add `report`, `ui` and `watch`."""
    help = "print the path of a run's report, or of a page that compares runs; --open shows it in the browser"
    parser = commands.add("report", report, help, "last --open", "last --compare 20261121-0801")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    compare = "make a page that compares the run with these"
    parser.add_argument("--compare", metavar="RUN", nargs="+", default=[], help=compare)
    add_run(parser, "last")

    pages = "show runs, their live reports and sweeps in a browser; listens on loopback only"
    parser = commands.add("ui", ui, pages, "--port 0")
    parser.add_argument("--port", type=bounded(0, 65535), default=8082, metavar="N", help="0: any free port")

    parser = commands.add("watch", watch, "show the progress of a run until it ends", "last --once")
    parser.add_argument("--once", action="store_true", help="show the current state and exit")
    add_json(parser, "the current state, a row per stage")
    add_run(parser, "the newest live run")


def report(options: Namespace) -> int:
    """Print the path of a run's report, or of a comparison of runs; with --open, open it in the browser."""
    root = store_of(options).root
    record = history.find(root, options.run or "last")
    if options.compare:
        runs = {run.id: run for run in (record, *(history.find(root, word) for word in options.compare))}
        page = _compare(root, list(runs.values()))
    else:
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


def _compare(root: Path, records: Sequence[Record]) -> Path:
    """Write the page that compares runs to STORE/comparisons; return its path."""
    from pipeline.sweep.build import add_plotly  # imported late: pages take 0.3 s to import
    from pipeline.ui.live import compared
    from stages.base.files import replace_file
    from stages.report.compare import render
    from stages.report.language import page_language

    with page_language(records[0].language):
        content = render(compared(root, records, "../../"))
    name = hashlib.sha256(" ".join(record.id for record in records).encode()).hexdigest()[:8]
    page = root / "comparisons" / name / "index.html"
    with store_errors(page):
        page.parent.mkdir(parents=True, exist_ok=True)
        replace_file(page, content.encode())
        add_plotly(page.parent)
    return page


def ui(options: Namespace) -> int:
    """Serve the store's pages until interrupted."""
    from pipeline.ui.server import LOOPBACK, Access, listen  # takes 0.3 s, which watch does not need

    root, access = store_of(options).root, Access()
    with listen(root, access, options.port) as server:
        url = f"http://{LOOPBACK}:{server.server_address[1]}/?token={access.token}"
        say(f"runs and live reports of {root}: {url}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return Exit.DONE


def watch(options: Namespace) -> int:
    """Show a run until it ends; with --once, show its current state."""
    root = store_of(options).root
    record = choose(root, options.run)
    if options.json:
        stages = rows(root, record)
        left = left_of_run(record, stages)
        values = {"run": record.id, "state": record.state, "stages": [asdict(row) for row in stages]}
        print(as_json({**values, "left_s": None if left is None else left.seconds}))
        return Exit.DONE
    out = console()
    if options.once or record.state != "running":
        out.print(view(record, rows(root, record)))
        return Exit.DONE
    record = follow(root, record, out)
    return Exit.DONE if record.state == "finished" else Exit.FAILED
