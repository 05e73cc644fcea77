"""`grpoflow ui`: Luigi's scheduler with its pages, a list of the store's runs and their live reports.

One process on loopback. Runs started with `grpoflow run --ui` tell it their progress; its own pages read
the store, so that they also show runs that know nothing of it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import signal
import webbrowser
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import luigi
import luigi.scheduler
import luigi.server
import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.web

from launch.environment import cards_here
from pipeline import live
from pipeline.config import load
from pipeline.errors import ConfigError, Problem
from pipeline.ui_address import ADDRESS

HISTORY = Path(".ui") / "history.sqlite"
LOOPBACK = "127.0.0.1"
EXIT_DONE = 0


def ui(options: Namespace) -> int:
    """Serve until told to stop."""
    root = Path(load(options.overrides, options.config_dir).store).absolute()
    (root / ADDRESS).parent.mkdir(parents=True, exist_ok=True)
    cards = options.cards or cards_here()
    scheduler = _scheduler(root, cards)
    # Only under these names: a page of another site can't read ours by pointing its own name at loopback.
    application = luigi.server.app(scheduler)
    application.add_handlers(r"(127\.0\.0\.1|localhost)", _handlers(root))
    loop = tornado.ioloop.IOLoop.current()
    try:
        sockets = tornado.netutil.bind_sockets(options.port, address=LOOPBACK)
    except OSError as error:
        remedy = "choose another, or --port 0 for any that is free"
        raise ConfigError(
            [Problem("--port", options.port, f"must be free: {error.strerror}", remedy)]
        ) from error
    server = tornado.httpserver.HTTPServer(application)
    server.add_sockets(sockets)
    url = f"http://{LOOPBACK}:{sockets[0].getsockname()[1]}"
    (root / ADDRESS).write_text(json.dumps({"url": url, "cards": cards}), encoding="utf-8")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
    tornado.ioloop.PeriodicCallback(scheduler.prune, 60_000).start()
    print(f"runs and live reports of {root}: {url}/")
    print(f"tasks: {url}/static/visualiser/index.html, their history: {_history_told(url)}")
    print(f"{cards} cards; a run appears among the tasks when started with: grpoflow run --ui …", flush=True)
    if options.open:
        webbrowser.open(url)
    try:
        loop.start()
    finally:
        server.stop()
        (root / ADDRESS).unlink(missing_ok=True)
    return EXIT_DONE


def _scheduler(root: Path, cards: int) -> Any:
    """Luigi's own; its state is not kept, since that would be a pickle, but its history is."""
    config = luigi.configuration.get_config()
    config.set("resources", "cards", str(cards))
    has_history = importlib.util.find_spec("sqlalchemy") is not None
    if has_history:
        config.set("task_history", "db_connection", f"sqlite:///{root / HISTORY}")
    return luigi.scheduler.Scheduler(record_task_history=has_history, retry_delay=1.0)


def _history_told(url: str) -> str:
    if importlib.util.find_spec("sqlalchemy") is None:
        return "not kept (pip install 'grpoflow[ui]')"
    return f"{url}/history"


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
        self.set_header("X-Content-Type-Options", "nosniff")

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
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(content)
