"""Local server of `grpoflow ui`: the list of runs, their live reports and the pages in the store.

It listens on loopback, and only reads the store, except that it adds names and pins of runs to the history.
The printed URL contains a secret token. A browser exchanges it for a cookie; programs send it as
`Authorization: Bearer`. Other users of this machine can connect, but every response without the token is 403.
"""

import functools
import hashlib
import hmac
import html
import json
import re
import secrets
import traceback
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from pipeline.errors import ConfigError, Problem, StoreError
from pipeline.ui import live
from stages.report.charts import PLOTLY, plotly

LOOPBACK = "127.0.0.1"
HOST_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Accepted names in the Host header; any port, because `ssh -L` may forward from another one."""
RUN_PAGE = re.compile(r"/run/([\w-]+)")
STORED_FILE = re.compile(
    r"/((?:report|sweeps|comparisons)/[0-9a-f]{8,16}/(?:index\.html|table\.csv|plotly\.min\.js))"
)
LOG = re.compile(r"/(\.logs/(?:[\w+-]+/)+(?:stage|worker_\d+)\.log)")
MAX_CHANGE_BYTES = 4096
"""Size of the JSON that names or pins a run."""
MAX_LOG_BYTES = 4 << 20
"""The end of a log that is sent."""
CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SCRIPT_POLICY = f"{CONTENT_POLICY}; script-src 'self' 'unsafe-inline'"
"""Of pages with scripts: a page itself allows only the hash of its own, and browsers enforce both."""
LIST_POLICY = f"{SCRIPT_POLICY}; connect-src 'self'"
"""Of the list of runs, whose script asks for the list again."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
FOR_A_DAY = {"Cache-Control": "private, max-age=86400"}
"""Of Plotly, which has megabytes: a live page reloads every ten seconds."""
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    ".html": ("text/html", {"Content-Security-Policy": SCRIPT_POLICY}),
    ".csv": ("text/csv", {}),
    ".js": ("text/javascript", FOR_A_DAY),
}
"""Ending of a file of the store -> its media type and headers."""


@dataclass(frozen=True)
class Access:
    """The token of one server process."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """Name of the cookie; it differs per token because browsers share cookies between ports of a host."""
        return f"grpoflow-{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"

    def refusal(self, headers: Message, query_token: str | None) -> str | None:
        """Return why a request is refused, or None; `query_token` is the token in its URL, if any."""
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if not _is_local(host):  # prevents DNS rebinding
            return f"served only under the names {', '.join(sorted(HOST_NAMES))}"
        if origin is not None and origin.partition("://")[2] != host:
            return "pages of other origins are refused"
        if query_token is not None:  # a link on any page may contain the token
            matches = _equal(query_token, self.token)
            return None if matches else "the token in this URL is not the one of this grpoflow ui"
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "pages of other origins are refused"
        kind, _, bearer = headers.get("Authorization", "").partition(" ")
        pairs = (part.strip().partition("=") for part in headers.get("Cookie", "").split(";"))
        tokens = [value for name, _, value in pairs if name == self.cookie]
        tokens += [bearer.strip()] if kind.lower() == "bearer" else []
        if any(_equal(token, self.token) for token in tokens):
            return None
        return "open the URL that grpoflow ui printed, including its token"


def _is_local(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in HOST_NAMES
    except ValueError:
        return False


def _object(content: bytes) -> dict[str, Any]:
    """Return the object that JSON describes; {} if it describes none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _equal(value: str, token: str) -> bool:
    return hmac.compare_digest(value.encode("utf-8", "replace"), token.encode())


def listen(root: Path, access: Access, port: int) -> ThreadingHTTPServer:
    """Listen on a port of 127.0.0.1 (0: any free one); raise ConfigError if it cannot be used."""
    handler: Any = functools.partial(Pages, root=root, access=access)
    try:
        return ThreadingHTTPServer((LOOPBACK, port), handler)
    except OSError as error:
        rule, remedy = f"cannot be used: {error.strerror}", "choose another; 0 is any free port"
        raise ConfigError([Problem("--port", port, rule, remedy)]) from error


class Pages(BaseHTTPRequestHandler):
    """Handler of one request; nothing is sent before the access check."""

    server_version, sys_version = "grpoflow", ""
    timeout = 30

    def __init__(self, *arguments: Any, root: Path, access: Access) -> None:
        self._root, self._access = root, access
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Check access and send the page."""
        path, _, query = self.path.partition("?")
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        token = parameters.pop("token", None)
        refusal = self._access.refusal(self.headers, token)
        if refusal is not None:
            self._send(403, f"grpoflow ui: {refusal}\n")
        elif self.command not in ("GET", "HEAD"):
            self._send(405, "pages can only be read\n")
        elif token is not None:
            self._exchange_token(path, parameters)
        else:
            try:
                self._send_page(path, query)
            except (ConfigError, FileNotFoundError):
                self._send(404, "no such page\n")
            except ConnectionError:
                self.close_connection = True
            except Exception:
                traceback.print_exc()
                self._send(500, "this page cannot be shown; see the output of grpoflow ui\n")

    do_HEAD = do_PUT = do_DELETE = do_OPTIONS = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """Check access and change the name or the pin of the run at /run/ID.

        The token must come in the cookie or as Bearer, not in the URL. A page of another origin can send the
        cookie in no browser (SameSite), and JSON only after a preflight request, which is refused.
        """
        match = RUN_PAGE.fullmatch(self.path)
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        length = self.headers.get("Content-Length", "")
        if (refusal := self._access.refusal(self.headers, None)) is not None:
            self._send(403, f"grpoflow ui: {refusal}\n")
        elif match is None:
            self._send(405, "only the name and the pin of a run can be changed\n")
        elif kind != "application/json":
            self._send(415, "a change must be application/json\n")
        elif not length.isdecimal() or int(length) > MAX_CHANGE_BYTES:
            self._send(413, f"a change must state its length, at most {MAX_CHANGE_BYTES} bytes\n")
        else:
            try:
                live.edit(self._root, match[1], _object(self.rfile.read(int(length))))
                self._send(200, "{}", "application/json")
            except ConfigError as error:
                self._send(400, f"{error}\n")
            except StoreError as error:
                self._send(500, f"{error}\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: URLs may contain the token."""

    def _exchange_token(self, path: str, parameters: dict[str, str]) -> None:
        """Set the cookie and forward to the same URL without the token.

        A page forwards, not a redirect: after a link on another site, a redirect would not carry the cookie.
        """
        query = f"?{urlencode(parameters)}" if parameters else ""
        target = html.escape("/" + path.lstrip("/\\") + query)
        cookie = f"{self._access.cookie}={self._access.token}; HttpOnly; SameSite=Strict; Path=/"
        page = '<!doctype html><meta charset="utf-8"><title>grpoflow</title>'
        page += f'<meta http-equiv="refresh" content="0;url={target}"><a href="{target}">continue</a>'
        self._send(200, page, "text/html", {"Set-Cookie": cookie})

    def _send_page(self, path: str, query: str) -> None:
        """Send the page at `path`; runs with a final report are redirected to it."""
        if path == "/":
            self._send(200, live.overview(self._root), "text/html", {"Content-Security-Policy": LIST_POLICY})
        elif path == "/compare":
            runs = [value for key, value in parse_qsl(query) if key == "run"]
            page = live.comparison(self._root, runs)
            self._send(200, page, "text/html", {"Content-Security-Policy": SCRIPT_POLICY})
        elif match := RUN_PAGE.fullmatch(path):
            page, report = live.report(self._root, match[1])
            headers = {"Content-Security-Policy": SCRIPT_POLICY}
            headers |= {} if report is None else {"Location": f"/{report}/index.html"}
            self._send(200 if report is None else 302, page, "text/html", headers)
        elif path == f"/{PLOTLY}":  # of live pages, which are in no directory
            self._send(200, plotly().decode(), "text/javascript", FOR_A_DAY)
        elif (match := STORED_FILE.fullmatch(path)) and not (file := self._root / match[1]).is_symlink():
            text = file.read_text(encoding="utf-8", errors="replace")
            kind, headers = KINDS[file.suffix]
            self._send(200, text, kind, headers)
        elif (match := LOG.fullmatch(path)) and not (file := self._root / match[1]).is_symlink():
            with file.open("rb") as log:
                log.seek(max(0, file.stat().st_size - MAX_LOG_BYTES))
                self._send(200, log.read(MAX_LOG_BYTES).decode("utf-8", "replace"))
        else:
            raise FileNotFoundError

    def _send(
        self, status: int, text: str, kind: str = "text/plain", headers: dict[str, str] | None = None
    ) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        length = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**HEADERS, **length, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
