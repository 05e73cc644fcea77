"""Who may ask `grpoflow ui` for what: one gate before its own pages and before Luigi's.

- Whoever opens the address that it prints has its token, and from then on a cookie; programs send the token
  as `Authorization: Bearer`. Without it nothing is served: other users of this machine can connect, but read
  nothing.
- Only under names of this machine: a page elsewhere can't read ours by pointing its own name at loopback.
- Not for pages of other origins, whatever cookies a browser sends along.
- What changes the scheduler takes another key, which only this user's runs can read (ui_address).
"""

import hashlib
import hmac
import html
import json
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import luigi.server
import tornado.httputil
import tornado.web

NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Ports are not looked at: `ssh -L` brings ours under another one."""
READ = frozenset(
    {
        "dep_graph", "fetch_error", "get_running_task_resources", "get_task_progress_percentage",
        "get_task_status_message", "graph", "has_task_history", "inverse_dep_graph", "is_pause_enabled",
        "is_paused", "resource_list", "task_list", "task_search", "worker_list",
    }
)  # fmt: skip
"""What Luigi's pages show (luigi 3.8.1, static/visualiser/js/luigi.js)."""
RUN = frozenset(
    {
        "add_scheduler_message_response", "add_task", "add_task_batcher", "add_worker",
        "announce_scheduling_failure", "count_pending", "decrease_running_task_resources", "get_work", "ping",
        "report_task_statistics", "set_task_progress_percentage", "set_task_status_message",
    }
)  # fmt: skip
"""What a run's worker says (luigi 3.8.1, worker.py)."""
NO_CALL = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""How Luigi's scheduler takes arguments that make no sense."""
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Keys:
    """What one `grpoflow ui` lets in, for as long as it lives."""

    token: str = field(default_factory=_secret, repr=False)
    """Reads."""
    run: str = field(default_factory=_secret, repr=False)
    """Reads, and does what runs do."""

    @property
    def cookie(self) -> str:
        """Its name; browsers keep cookies by host, and several of us have ports of one host."""
        return f"grpoflow-{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"


class Gate(tornado.web.Application):
    """An application of which every address, static files too, lies behind the gate."""

    def __init__(self, handlers: list[Any], keys: Keys, **settings: Any) -> None:
        """Serve `handlers` to those who have one of `keys`."""
        self._keys = keys
        transforms = [tornado.web.GZipContentEncoding, _Headers]
        super().__init__(handlers, transforms=transforms, log_function=_log_nothing, **settings)

    def find_handler(self, request: tornado.httputil.HTTPServerRequest, **kwargs: Any) -> Any:
        """Where a request goes."""
        given = request.query_arguments.get("token")
        refusal = _foreign(request, entering=given is not None)
        if refusal is None and given is not None:
            if request.method == "GET" and _same(given[-1].decode("latin-1"), self._keys.token):
                return self.get_handler_delegate(request, _Enter, {"keys": self._keys})
            refusal = "the token in this address is not, or no longer, the one of this grpoflow ui"
        elif refusal is None and not (is_run(request, self._keys) or self._may_read(request)):
            refusal = "open the address that grpoflow ui has printed, with its token"
        if refusal is not None:
            return self.get_handler_delegate(request, _Refused, {"reason": refusal})
        return super().find_handler(request, **kwargs)

    def _may_read(self, request: tornado.httputil.HTTPServerRequest) -> bool:
        kept = request.cookies.get(self._keys.cookie)
        shown = (_bearer(request), kept.value if kept is not None else "")
        return any(_same(token, self._keys.token) for token in shown)


def is_run(request: tornado.httputil.HTTPServerRequest, keys: Keys) -> bool:
    """Whether a run of this user asks; never so by a cookie, which a browser sends on its own."""
    return _same(_bearer(request), keys.run)


def _foreign(request: tornado.httputil.HTTPServerRequest, entering: bool) -> str | None:
    """Why the request comes from where it should not, or None."""
    try:
        name = urlsplit(f"//{request.host}").hostname
    except ValueError:
        name = None
    if name not in NAMES:
        return f"only under {', '.join(sorted(NAMES))}"
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return "not for pages of another origin"
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in ("none", "same-origin") and not entering:
        return "not for pages of another origin"
    return None


def _bearer(request: tornado.httputil.HTTPServerRequest) -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _log_nothing(handler: tornado.web.RequestHandler) -> None:
    """Addresses hold the token; failures of our own are told by tornado.application all the same."""


class _Headers(tornado.web.OutputTransform):
    """Puts what every answer says of itself into it."""

    def transform_first_chunk(
        self, status_code: int, headers: tornado.httputil.HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, tornado.httputil.HTTPHeaders, bytes]:
        for name, value in HEADERS.items():
            headers[name] = value
        return status_code, headers, chunk


class _Refused(tornado.web.RequestHandler):
    def initialize(self, reason: str) -> None:
        self._reason = reason

    def prepare(self) -> None:
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"grpoflow ui: {self._reason}\n")


class _Enter(tornado.web.RequestHandler):
    """Trades the token for a cookie, and goes on to the same address without it.

    By a page, not by a redirect: after a link on somebody else's page, a redirect would not carry the cookie.
    """

    def initialize(self, keys: Keys) -> None:
        self._keys = keys

    def get(self, *_: str) -> None:
        rest = [(name, value) for name, values in self.request.query_arguments.items() for value in values]
        query = urlencode([(name, value) for name, value in rest if name != "token"])
        onward = "/" + self.request.path.lstrip("/") + (f"?{query}" if query else "")
        self.set_cookie(self._keys.cookie, self._keys.token, httponly=True, samesite="Strict", path="/")
        self.set_header("Cache-Control", "no-store")
        target = html.escape(onward)
        self.write('<!doctype html><meta charset="utf-8"><title>grpoflow</title>')
        self.finish(f'<meta http-equiv="refresh" content="0;url={target}"><a href="{target}">go on</a>')


class Api(luigi.server.RPCHandler):  # type: ignore[misc]
    """Luigi's calls: reading ones for pages and programs, those of workers for our own runs, no others."""

    def initialize(self, scheduler: Any, keys: Keys) -> None:
        """Take over what answers, and who may ask."""
        super().initialize(scheduler)
        self._keys = keys

    def get(self, method: str) -> None:
        """Answer one call."""
        if method not in READ and not (method in RUN and is_run(self.request, self._keys)):
            raise tornado.web.HTTPError(403, reason="not from here")
        try:
            values = json.loads(self.get_argument("data", default="{}"))
            if not isinstance(values, dict):
                raise ValueError("no object")
            address = values.get("tracking_url")
            if address is not None and not str(address).startswith(("/", "http://", "https://")):
                raise ValueError("an address that a browser would run")
            super().get(method)
        except NO_CALL as error:
            raise tornado.web.HTTPError(400, reason="no call of this kind") from error

    post = get

    def options(self, *_: str) -> None:
        """Nothing: there is no other origin that may ask."""
        self.set_status(204)
