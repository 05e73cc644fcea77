"""A proxy before an S3 server that spoils answers and requests."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import urlsplit

from tests.pipeline.remote import servers

CODES = {
    "expired credentials": (403, "ExpiredToken"), "a clock that is wrong": (403, "RequestTimeTooSkewed"),
    "no such key": (403, "InvalidAccessKeyId"), "500": (500, "InternalError"), "503": (503, "SlowDown"),
}  # fmt: skip


@dataclass
class Fault:
    """A manipulation of requests, and the number of tries of each request that it affects."""

    kind: str
    tries: int
    random: Random = field(default_factory=lambda: Random(7))
    seen: Counter[str] = field(default_factory=Counter)
    spoiled: int = 0

    def spoils(self, request: str) -> bool:
        """Return True if the fault affects this try."""
        self.seen[request] += 1
        hit = self.seen[request] <= self.tries
        self.spoiled += hit
        return hit


@contextlib.contextmanager
def proxy(server: str, fault: Fault) -> Iterator[str]:
    """Stand before `server`; yields the address."""

    class Handler(_Handler):
        behind, does = urlsplit(server), fault

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        listening.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind = urlsplit("")
    does: Fault

    def log_message(self, *ignored: object) -> None:
        """Say nothing."""

    def _pass_on(self) -> None:
        fault, length = self.does, int(self.headers.get("Content-Length") or 0)
        spoils = fault.spoils(f"{self.command} {self.path}")
        if spoils and fault.kind == "a request that is cut":
            self.rfile.read(fault.random.randrange(length + 1))
            return self._hang_up()
        body = self.rfile.read(length)
        if spoils and fault.kind in CODES:
            status, code = CODES[fault.kind]
            message = f"{code} for {' '.join(servers.CREDENTIALS.values())}"
            text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            return self._answer(status, {"Content-Type": "application/xml"}, text, len(text))
        if spoils and fault.kind == "an answer that does not come":
            time.sleep(8)  # longer than the time limits of tests
            return self._hang_up()
        behind = http.client.HTTPConnection(str(self.behind.hostname), self.behind.port, timeout=30)
        with contextlib.closing(behind):
            behind.request(self.command, self.path, body, dict(self.headers.items()))
            answer = behind.getresponse()
            content = answer.read()
        headers = {key: value for key, value in answer.headers.items() if key.lower() != "transfer-encoding"}
        sent = content
        is_content = self.command == "GET" and "list-type" not in self.path and len(content) > 0
        if spoils and fault.kind == "wrong bytes" and is_content:
            index = fault.random.randrange(len(content))
            sent = content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :]
        if spoils and fault.kind == "an answer that is cut":
            sent = content[: fault.random.randrange(len(content) + 1)]
        if spoils and fault.kind == "a body that is shorter than it says" and is_content:
            return self._answer(answer.status, headers, content[:-1], len(content) - 1)
        if spoils and fault.kind == "an answer drop by drop" and is_content:
            return self._answer(answer.status, headers, content, len(content), pause_s=0.05)
        self._answer(answer.status, headers, sent, len(content))

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, claimed_length: int, pause_s: float = 0.0
    ) -> None:
        self.send_response_only(status)
        for key, value in headers.items():
            if key.lower() != "content-length" or self.command == "HEAD":
                self.send_header(key, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(claimed_length))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):  # who asked has gone
                for drop in body if pause_s else ():
                    self.wfile.write(bytes([drop]))
                    time.sleep(pause_s)
                self.wfile.write(b"" if pause_s else body)
        if len(body) < claimed_length:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815
