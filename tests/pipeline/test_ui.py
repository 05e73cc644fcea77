"""Access control of `grpoflow ui`, requested as a browser, another user and a foreign page would."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import pytest

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.store import history
from stages.report.charts import PLOTLY, plotly

RUN = "20260101-000000-aaaa"
SWEEP = "sweeps/0123abcd"
REPORT = "report/0123456789abcdef"
LINKED = f"report/{'f' * 16}"
LOGS = ".logs/grpo-0123456789abcdef"
PATHS = [
    "/", f"/run/{RUN}", f"/{REPORT}/index.html", f"/{SWEEP}/table.csv", f"/{LOGS}/stage.log", f"/{PLOTLY}",
    "/runs.jsonl",
    "/nowhere",
]  # fmt: skip


@dataclass
class Ui:
    """A running server."""

    store: Path
    process: subprocess.Popen[str]
    port: int
    token: str

    def get(self, path, headers=None, method="GET", body=None):
        """Return status, headers and text."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()

    def change(self, values, run=RUN, headers=None):
        """Ask for a change of a run; return status and text."""
        asked = {"Content-Type": "application/json", **(self.bearer() if headers is None else headers)}
        body = values if isinstance(values, bytes) else json.dumps(values).encode()
        status, _, text = self.get(f"/run/{run}", asked, "POST", body)
        return status, text

    def bearer(self, token=None):
        return {"Authorization": f"Bearer {token or self.token}"}


@contextlib.contextmanager
def served(store: Path) -> Iterator[Ui]:
    """Serve a store until a signal."""
    line = [sys.executable, "-m", "pipeline.cli", "ui", "--port", "0", f"store={store}"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", process.stdout.readline())
    assert printed is not None
    try:
        yield Ui(store, process, int(printed[1]), printed[2])
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def ui(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    artifacts = {"grpo": "grpo/0123456789abcdef"}
    history.record(store, RUN, "started", overrides=["seed=1"], config=load([]).plain(), artifacts=artifacts)
    for directory in (SWEEP, REPORT, LINKED):
        (store / directory).mkdir(parents=True)
    (store / LINKED / "index.html").symlink_to("/etc/hostname")
    for directory in (SWEEP, REPORT):
        (store / directory / "index.html").write_text(f"<p>page of {directory}</p>")
    (store / SWEEP / "table.csv").write_text("a,b\n")
    (store / LOGS).mkdir(parents=True)
    (store / LOGS / "stage.log").write_text("start\n" + "x" * (5 << 20) + "<script>end")
    with served(store) as server:
        yield server


def test_a_live_page_links_the_end_of_each_log_as_plain_text(ui):
    page = ui.get(f"/run/{RUN}", ui.bearer())[2]
    link = re.findall(r'<a href="([^"]*\.log)">grpo</a>', page)[0]
    status, headers, text = ui.get(urljoin(f"/run/{RUN}", link), ui.bearer())
    assert status == 200 and headers["content-type"].startswith("text/plain")
    assert text.endswith("x<script>end") and "start" not in text


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_served(ui, path, method):
    wrong = "x" * 43
    strangers = [{}, ui.bearer(wrong), {"Cookie": f"grpoflow={wrong}"}, {"Authorization": "Basic eDp5"}]
    for headers in strangers:
        status, _, text = ui.get(path, headers, method)
        assert status == 403 and "20260101" not in text and str(ui.store) not in text
    assert ui.get(f"{path}?token={wrong}", {}, method)[0] == 403
    assert ui.get(f"{path}?token=", {}, method)[0] == 403


def test_the_printed_url_opens_everything_in_a_browser(ui):
    status, headers, text = ui.get(f"/?token={ui.token}", {"Sec-Fetch-Site": "cross-site"})
    assert status == 200 and "url=/" in text and ui.token not in text
    assert ui.token not in Path(f"/proc/{ui.process.pid}/cmdline").read_text()
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    inside = {"Cookie": f"other=1; {cookie.split(';')[0]}", "Sec-Fetch-Site": "same-origin"}
    status, headers, text = ui.get("/", inside)
    assert status == 200 and RUN in text
    assert headers["x-frame-options"] == "DENY" and headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    for path in (f"/run/{RUN}", f"/{REPORT}/index.html", f"/{SWEEP}/index.html", f"/{SWEEP}/table.csv"):
        assert ui.get(path, inside)[0] == 200
    assert ui.get(f"/{SWEEP}/table.csv", inside)[1]["content-type"].startswith("text/csv")


def test_a_content_security_policy_is_sent_with_every_page(ui):
    for path in (f"/run/{RUN}", f"/{REPORT}/index.html", "/nowhere", f"/?token={ui.token}"):
        policy = ui.get(path, {} if "token" in path else ui.bearer())[1]["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        has_charts = path.startswith(("/run/", "/report/"))
        assert ("script-src 'self' 'unsafe-inline'" in policy) is has_charts
    policy = ui.get("/", ui.bearer())[1]["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    policy = ui.get(f"/{SWEEP}/index.html", ui.bearer())[1]["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self' 'unsafe-inline'" in policy


def test_what_draws_charts_is_served_once_a_day(ui):
    (ui.store / REPORT / PLOTLY).write_bytes(b"1")
    for path, content in ((f"/{PLOTLY}", plotly().decode()), (f"/{REPORT}/{PLOTLY}", "1")):
        status, headers, text = ui.get(path, ui.bearer())
        assert (status, text) == (200, content) and headers["content-type"].startswith("text/javascript")
        assert headers["cache-control"] == "private, max-age=86400"
    assert f'src="/{PLOTLY}"' not in ui.get(f"/run/{RUN}", ui.bearer())[2], "no step, no chart"


def test_the_token_is_not_forwarded_to_a_different_host(ui):
    for path in ("//elsewhere.example/", "/\\elsewhere.example/"):
        text = ui.get(f"{path}?token={ui.token}")[2]
        assert "url=/elsewhere.example/" in text
    text = ui.get(f'/%22"><script>?token={ui.token}&a=%22%3E<script')[2]
    assert "<script" not in text and 'a="' not in text


def test_only_names_of_this_machine_and_the_same_origin_are_served(ui):
    known = ui.bearer()
    for host in ("127.0.0.1", "localhost:9000", "[::1]:8082", "LOCALHOST"):
        assert ui.get("/", {**known, "Host": host})[0] == 200
        assert ui.get("/", {**known, "Host": host, "Origin": f"http://{host}"})[0] == 200
    for host in ("elsewhere.example", "127.0.0.1.elsewhere.example", "localhost.", "[::1", "", "127.0.0.1@x"):
        assert ui.get("/", {**known, "Host": host})[0] == 403
        assert ui.get(f"/?token={ui.token}", {"Host": host})[0] == 403
    for origin in ("http://elsewhere.example", "null", "http://127.0.0.1:1", "file://"):
        assert ui.get("/", {**known, "Host": "127.0.0.1:8082", "Origin": origin})[0] == 403
    for site in ("cross-site", "same-site"):  # another port of this machine is the same site
        assert ui.get("/", {**known, "Sec-Fetch-Site": site})[0] == 403


def test_pages_can_only_be_read(ui):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ui.get("/", ui.bearer(), method)[0] == 405
    status, _, text = ui.get("/", ui.bearer(), "HEAD")
    assert (status, text) == (200, "")


def test_a_run_is_named_and_pinned_in_the_history(ui):
    assert ui.change({"name": "the <b>best</b>", "pinned": True})[0] == 200
    run = history.find(ui.store, RUN)
    assert (run.name, run.pinned) == ("the <b>best</b>", True)
    size = (ui.store / history.FILE).stat().st_size
    assert ui.change({"name": "the <b>best</b>", "pinned": True})[0] == 200
    assert (ui.store / history.FILE).stat().st_size == size, "what is so already is not recorded again"
    page = ui.get("/", ui.bearer())[2]
    assert "the &lt;b&gt;best&lt;/b&gt;" in page and "<b>best" not in page
    assert ui.change({"name": ""})[0] == 200 and ui.change({"pinned": False})[0] == 200
    run = history.find(ui.store, RUN)
    assert (run.name, run.pinned) == (None, False)


def test_changes_are_refused_to_strangers_and_other_origins(ui):
    headers = ui.get(f"/?token={ui.token}")[1]
    cookie = {"Cookie": headers["set-cookie"].split(";")[0]}
    before = (ui.store / history.FILE).read_bytes()
    for stranger in (
        {}, ui.bearer("x" * 43), {**cookie, "Origin": "http://elsewhere.example"},
        {**cookie, "Sec-Fetch-Site": "same-site"}, {**cookie, "Host": "elsewhere.example"},
    ):  # fmt: skip
        assert ui.change({"pinned": True}, headers=stranger)[0] == 403, stranger
    for kind in ("text/plain", "application/x-www-form-urlencoded"):  # what a form of a foreign page can send
        assert ui.change({"pinned": True}, headers={**cookie, "Content-Type": kind})[0] == 415
    body = json.dumps({"pinned": True}).encode()
    asked = {"Content-Type": "application/json"}
    assert ui.get(f"/run/{RUN}?token={ui.token}", asked, "POST", body)[0] == 403, "no token in the address"
    assert (ui.store / history.FILE).read_bytes() == before
    own = {**cookie, "Origin": f"http://127.0.0.1:{ui.port}", "Sec-Fetch-Site": "same-origin"}
    assert ui.change({"pinned": False}, headers=own)[0] == 200


@pytest.mark.parametrize(
    ("values", "status", "said"),
    [
        ({"name": "last"}, 400, "last"), ({"name": "a=b"}, 400, "="), ({"name": "x" * 81}, 400, "80"),
        ({"name": "a\u202eb"}, 400, "printable"), ({"name": 3}, 400, "must be"),
        ({"pinned": "yes"}, 400, "must be"),
        ({"state": "finished"}, 400, "must be"), ({}, 400, "must be"), (b"[]", 400, "must be"),
        (b"{", 400, "must be"), (b"[" * 4000, 400, "must be"), (b"x" * 5000, 413, "4096"),
    ],
)  # fmt: skip
def test_other_changes_are_refused_with_their_reason(ui, values, status, said):
    before = (ui.store / history.FILE).read_bytes()
    answered, text = ui.change(values)
    assert answered == status and said in text
    assert (ui.store / history.FILE).read_bytes() == before
    assert ui.change({"pinned": True}, run="nobody")[0] == 400


@pytest.mark.parametrize(
    "path",
    [
        "/run/nobody", "/runs.jsonl", "/report/../runs.jsonl", "/report/%2e%2e/index.html", "/.work/x",
        f"/{LOGS}/spec.json", f"/{LOGS}/../x/stage.log", "/.logs/../stage.log", "/.logs/stage.log",
        f"/{REPORT}/manifest.json", f"/{REPORT}/../../runs.jsonl", f"/{REPORT}//index.html",
        f"/{LINKED}/index.html",
    ],
)  # fmt: skip
def test_only_pages_are_served(ui, path):
    assert ui.get(path, ui.bearer())[0] == 404


def test_a_port_in_use_is_refused(tmp_path, capsys):
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = str(used.getsockname()[1])
        assert main(["ui", "--port", port, f"store={tmp_path}"]) == 2
    assert f"--port={port}" in capsys.readouterr().err
