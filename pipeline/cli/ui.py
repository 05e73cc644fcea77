"""`grpoflow ui`."""

from __future__ import annotations

from pipeline.cli.command import Commands
from pipeline.ui import server


def register(commands: Commands) -> None:
    """Options of `ui`."""
    parser = commands.add(
        "ui",
        server.ui,
        "serve Luigi's task pages, the runs and their live reports on loopback",
        "--port 0 --open",
    )
    parser.add_argument("--port", type=int, default=8082, metavar="N", help="0: any that is free")
    parser.add_argument(
        "--socket", metavar="PATH", help="a Unix socket instead of a port: the kernel opens it to you alone"
    )
    parser.add_argument("--cards", type=int, metavar="N", help="cards of this machine (default: found)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
