"""A ModelScope hub and a plain file server on loopback: what the real client is tested against.

It answers as modelscope-hub 0.5.1 expects; tests can make it fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

API = re.compile(r"/api/v1/(model|dataset)s/([^/]+/[^/]+)/repo(/files|/tree)?")


@dataclass
class Seen:
    """One request."""

    file: str
    """FilePath of a download, else empty."""
    headers: dict[str, str]


@dataclass
class Hub:
    """Content and behaviour; tests change both while it runs."""

    port: int = 0
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """model/OWNER/NAME or dataset/OWNER/NAME -> path -> content."""
    plain: dict[str, bytes] = field(default_factory=dict)
    """Paths outside the hub's interface, with or without a query -> content."""
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Path -> keys of its listing to change; None removes one. Unknown paths are added."""
    statuses: list[int] = field(default_factory=list)
    """Answered to the next requests instead of content, one each."""
    cut_after: int = 0
    """Close the connection after so many bytes of a file, once; 0: never."""
    bytes_per_s: int = 0
    """Speed of files; 0: no limit."""
    requests: list[Seen] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def downloads(self) -> list[Seen]:
        return [seen for seen in self.requests if seen.file]

    def listing(self, repository: str) -> list[dict[str, Any]]:
        entries: dict[str, dict[str, Any]] = {}
        for path, content in self.repositories[repository].items():
            digest = hashlib.sha256(content).hexdigest()
            entries[path] = {"Path": path, "Type": "blob", "Size": len(content), "Sha256": digest}
        for path, changes in self.listed.items():
            entry = entries.get(path, {"Path": path, "Type": "blob", "Size": 3}) | changes
            entries[path] = {key: value for key, value in entry.items() if value is not None}
        return list(entries.values())


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        match = API.fullmatch(parts.path)
        file = query.get("FilePath", "") if match else parts.path * (parts.path in self.hub.plain)
        self.hub.requests.append(Seen(file, dict(self.headers)))
        if parts.path.endswith("/internalAccelerationInfo"):
            return self._json(404, {})
        if self.hub.statuses:
            return self._json(self.hub.statuses.pop(0), {"Message": "no"})
        if not match:
            return self._file(self.hub.plain.get(self.path, self.hub.plain.get(parts.path)))
        content = self.hub.repositories.get(f"{match[1]}/{match[2]}")
        if content is None or query.get("Revision") not in ("master", "v1"):
            return self._json(404, {"Code": 10010205001, "Message": "not found"})
        if match[3] is None:
            return self._file(content.get(file))
        files = self.hub.listing(f"{match[1]}/{match[2]}")
        if match[3] == "/tree":
            first = (int(query["PageNumber"]) - 1) * int(query["PageSize"])
            files = files[first : first + int(query["PageSize"])]
        return self._json(200, {"Code": 200, "Data": {"Files": files}})

    def _json(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, content: bytes | None) -> None:
        if content is None:
            return self._json(404, {"Message": "no such file"})
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(requested[1]) if requested else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self._send(content[start:])

    def _send(self, body: bytes) -> None:
        cut, self.hub.cut_after = self.hub.cut_after, 0
        if cut:
            self.wfile.write(body[:cut])
            self.close_connection = True
            return
        step = max(1, self.hub.bytes_per_s // 20) if self.hub.bytes_per_s else max(1, len(body))
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            self.wfile.flush()
            if self.hub.bytes_per_s:
                time.sleep(0.05)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextlib.contextmanager
def serve() -> Iterator[Hub]:
    """A hub on a free port of 127.0.0.1."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
