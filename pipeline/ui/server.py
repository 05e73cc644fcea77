"""`grpoflow ui`: Luigi's scheduler with its pages, a list of the store's runs and their live reports.

One process on loopback, or on a Unix socket, behind one gate. Runs started with `grpoflow run --ui` tell it
their progress; its own pages read the store, so that they also show runs that know nothing of it.
"""

import asyncio
import functools
import html
import importlib.util
import os
import signal
import socket
import webbrowser
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import luigi
import luigi.scheduler
import luigi.server
import tornado.escape
import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.web

from launch.machine.environment import cards_here
from pipeline.config.load import load
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store import ui_address
from pipeline.store.ui_address import ADDRESS, Place
from pipeline.ui import live
from pipeline.ui.gate import Api, Gate, Keys

HISTORY = Path(".ui") / "history.sqlite"
OPEN = Path(".ui") / "open.html"
LOOPBACK = "127.0.0.1"


def ui(options: Namespace) -> int:
    """Serve until told to stop."""
    root = Path(load(options.overrides, options.config_dir).store).absolute()
    umask = os.umask(0o077)  # its history and its keys are nobody else's
    try:
        return _serve(root, options)
    finally:
        os.umask(umask)


def _serve(root: Path, options: Namespace) -> int:
    try:
        (root / ADDRESS).parent.mkdir(parents=True, exist_ok=True)
        (root / ADDRESS).parent.chmod(0o700)
    except OSError as error:
        raise StoreError.of(error, root / ADDRESS) from error
    keys = Keys()
    cards = cards_here() if options.cards is None else options.cards
    scheduler = _scheduler(root, cards)
    sockets = [_unix_socket(options.socket)] if options.socket else _sockets(options.port)
    server = tornado.httpserver.HTTPServer(_application(root, scheduler, keys))
    server.add_sockets(sockets)
    port = options.port if options.socket else sockets[0].getsockname()[1]
    place = Place(f"http://{LOOPBACK}:{port}", keys.token, keys.run, cards, options.socket)
    ui_address.write(root, place)
    loop = tornado.ioloop.IOLoop.current()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
    tornado.ioloop.PeriodicCallback(scheduler.prune, 60_000).start()
    _tell(root, place)
    if options.open:
        _open(root, place)
    try:
        loop.start()
    finally:
        server.stop()
        for file in (ADDRESS, OPEN):
            (root / file).unlink(missing_ok=True)
        if options.socket:
            Path(options.socket).unlink(missing_ok=True)
    return Exit.DONE


def _tell(root: Path, place: Place) -> None:
    entrance = f"?token={place.token}"
    if place.socket:
        print(f"on another machine: ssh -L {place.url.rpartition(':')[2]}:{place.socket} HOST, and there:")
    print(f"runs and live reports of {root}: {place.url}/{entrance}")
    print(f"tasks: {place.url}/static/visualiser/index.html{entrance}")
    kept = f"{place.url}/history" if _has_history() else "not kept (pip install 'grpoflow[ui]')"
    print(f"history of tasks: {kept}")
    print(
        f"{place.cards} cards; a run appears among the tasks when started with: grpoflow run --ui …",
        flush=True,
    )


def _open(root: Path, place: Place) -> None:
    """Start the browser by a file: command lines, and with them a token there, are everybody's to read."""
    target = html.escape(f"{place.url}/?token={place.token}")
    (root / OPEN).write_text(f'<meta http-equiv="refresh" content="0;url={target}">', encoding="utf-8")
    webbrowser.open((root / OPEN).as_uri())


def _sockets(port: int) -> list[socket.socket]:
    try:
        if not 0 <= port < 1 << 16:  # the system would take another one without a word
            raise OverflowError("from 0 to 65535")
        return tornado.netutil.bind_sockets(port, address=LOOPBACK)
    except (OSError, OverflowError) as error:
        remedy = "choose another, or --port 0 for any that is free"
        rule = f"must be free: {getattr(error, 'strerror', None) or error}"
        raise ConfigError([Problem("--port", port, rule, remedy)]) from error


def _unix_socket(path: str) -> socket.socket:
    """A socket that the kernel opens to this user alone, from its first moment on (by the umask)."""
    try:
        return tornado.netutil.bind_unix_socket(path, mode=0o600)
    except (OSError, ValueError) as error:
        rule = f"cannot be made: {getattr(error, 'strerror', None) or error}"
        remedy = "name a new file of at most 100 characters in a directory of yours"
        raise ConfigError([Problem("--socket", path, rule, remedy)]) from error


def _application(root: Path, scheduler: Any, keys: Keys) -> Gate:
    """Own pages, and of Luigi's what they need: its pages and its task history."""
    known = {"scheduler": scheduler}
    handlers: list[Any] = [*_handlers(root), (r"/api/(\w+)", Api, {**known, "keys": keys})]
    if _has_history():
        handlers += [
            (r"/history", luigi.server.RecentRunHandler, known),
            (r"/history/by_name/(\w+)", luigi.server.ByNameHandler, known),
            (r"/history/by_id/(\d+)", luigi.server.ByIdHandler, known),
        ]
    static = Path(luigi.server.__file__).parent / "static"
    return Gate(handlers, keys, static_path=str(static), unescape=tornado.escape.xhtml_unescape)


def _scheduler(root: Path, cards: int) -> Any:
    """Luigi's own; its state is not kept, since that would be a pickle, but its history is."""
    config = luigi.configuration.get_config()
    config.set("resources", "cards", str(cards))
    config.set("scheduler", "pause_enabled", "false")  # the pages only show
    has_history = _has_history()
    if has_history:
        config.set("task_history", "db_connection", f"sqlite:///{root / HISTORY}")
    return luigi.scheduler.Scheduler(record_task_history=has_history, retry_delay=1.0)


def _has_history() -> bool:
    return importlib.util.find_spec("sqlalchemy") is not None


def _handlers(root: Path) -> list[Any]:
    pool = ThreadPoolExecutor(max_workers=1)  # drawing takes a second, in which Luigi's workers must be heard
    known = {"root": root, "pool": pool}
    files = r"/((?:report/[0-9a-f]{16}|sweeps/[0-9a-f]{8})/index\.html|sweeps/[0-9a-f]{8}/table\.csv)"
    return [(r"/", _Home, known), (r"/run/([\w-]+)", _Live, known), (files, _File, {"root": root})]


class _Page(tornado.web.RequestHandler):
    """A page drawn from the store, off the loop."""

    def initialize(self, root: Path, pool: ThreadPoolExecutor) -> None:
        self._root, self._pool = root, pool

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")

    async def drawn(self, draw: Any, *arguments: Any) -> Any:
        """What `draw` returns, or 404 where it knows nothing of what is asked."""
        try:
            work = functools.partial(draw, self._root, *arguments)
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except ConfigError as error:
            raise tornado.web.HTTPError(404, reason="no such run") from error


class _Home(_Page):
    async def get(self) -> None:
        self.finish(await self.drawn(live.overview))

    def head(self) -> None:
        """What Luigi's clients ask whether a scheduler is there."""
        self.set_status(204)


class _Live(_Page):
    async def get(self, run: str) -> None:
        page, final = await self.drawn(live.report, run)
        if final is not None:
            self.redirect(f"/{final}/index.html")
        else:
            self.finish(page)


class _File(tornado.web.RequestHandler):
    """A finished report or a sweep's page, under the addresses that they have in the store."""

    def initialize(self, root: Path) -> None:
        self._root = root

    def get(self, name: str) -> None:
        try:
            content = (self._root / name).read_bytes()
        except OSError as error:
            raise tornado.web.HTTPError(404) from error
        kind = "text/csv" if name.endswith(".csv") else "text/html"
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(content)
