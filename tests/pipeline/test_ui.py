"""The gate of `grpoflow ui`, asked as a browser, a stranger, a foreign page and a run would."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from pipeline.cli import main
from pipeline.store import history, ui_address
from pipeline.store.ui_address import Place

CLI = [sys.executable, "-m", "pipeline.cli"]


@dataclass
class Ui:
    """A living one."""

    store: Path
    place: Place
    process: subprocess.Popen[str]
    printed: str

    def get(self, path, headers=None, method="GET", body=None):
        """Status, headers (lower case) and text."""
        connection = self.place.connect(30)
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        text = answer.read().decode()
        connection.close()
        return answer.status, told, text

    def bearer(self, key):
        return {"Authorization": f"Bearer {key}"}


def start(store, *options, browser):
    history.record(store, "20260101-000000-aaaa", "started", overrides=["seed=1"], config={}, artifacts={})
    line = [*CLI, "ui", *options, f"store={store}"]
    environment = {**os.environ, "BROWSER": str(browser)}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    printed = ""
    while "cards; a run appears" not in printed:
        line_told = process.stdout.readline()
        assert line_told, printed
        printed += line_told
    place = ui_address.read(store)
    assert place is not None
    return Ui(store, place, process, printed)


def end(ui):
    ui.process.send_signal(signal.SIGTERM)
    assert ui.process.wait(timeout=30) == 0
    assert not (ui.store / ".ui" / "address.json").exists()


@pytest.fixture(scope="module", params=["port", "socket"])
def ui(request, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    browser = store / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {store}/seen\n')
    browser.chmod(0o755)
    options = ["--port", "0", "--open"] if request.param == "port" else ["--socket", str(store / "ui.socket")]
    living = start(store, *options, "--cards", "3", browser=browser)
    yield living
    end(living)
    assert not (store / "ui.socket").exists() and not (store / ".ui" / "open.html").exists()


PATHS = [
    "/", "/run/20260101-000000-aaaa", "/report/0123456789abcdef/index.html", "/static/visualiser/index.html",
    "/history", "/history/by_name/RunGRPO", "/api/task_list", "/api/resource_list", "/api/update_resource",
    "/metrics", "/tasklist", "/nowhere",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_served(ui, path, method):
    wrong = "x" * 43
    strange = [{}, ui.bearer(wrong), {"Cookie": f"grpoflow={wrong}"}, {"Authorization": "Basic eDp5"}]
    for headers in strange:
        status, _, text = ui.get(path, headers, method)
        assert status == 403 and "20260101" not in text and str(ui.store) not in text
    assert ui.get(f"{path}?token={wrong}", {}, method)[0] == 403
    assert ui.get(f"{path}?token={ui.place.key}", {}, method)[0] == 403  # a run's key opens no browser's door


def test_the_printed_address_opens_everything_as_a_browser_goes(ui):
    addresses = re.findall(r"http://\S+\?token=\S+", ui.printed)
    assert len(addresses) == 2 and all(ui.place.token in one for one in addresses)
    assert ui.place.key not in ui.printed
    for address in addresses:
        place = urlsplit(address)
        status, headers, text = ui.get(f"{place.path}?{place.query}", {"Sec-Fetch-Site": "cross-site"})
        assert status == 200 and f"url={place.path}" in text and ui.place.token not in text
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
        inside = {"Cookie": cookie.split(";")[0], "Sec-Fetch-Site": "same-origin"}
        assert ui.get(place.path, inside)[0] == 200
    status, headers, text = ui.get("/", inside)
    assert "20260101-000000-aaaa" in text
    assert headers["x-frame-options"] == "DENY" and headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert ui.get("/api/task_list?data=" + quote('{"status": "", "upstream_status": ""}'), inside)[0] == 200
    assert ui.get("/api/resource_list", inside)[2].count('"num_total": 3') == 1


def test_the_token_goes_on_to_no_other_host(ui):
    text = ui.get(f"//elsewhere.example/?token={ui.place.token}")[2]
    assert "url=/elsewhere.example/" in text
    text = ui.get(f"/%22%3E%3Cscript%3E?token={ui.place.token}&a=%22%3E")[2]
    assert "<script" not in text and 'a="' not in text


@pytest.mark.parametrize("key", ["token", "key"])
def test_only_under_names_of_this_machine_and_for_no_other_origin(ui, key):
    known = ui.bearer(getattr(ui.place, key))
    for host in ("127.0.0.1", "localhost:9000", "[::1]:8082", "LOCALHOST"):
        assert ui.get("/", {**known, "Host": host})[0] == 200
        assert ui.get("/", {**known, "Host": host, "Origin": f"http://{host}"})[0] == 200
    for host in ("elsewhere.example", "127.0.0.1.elsewhere.example", "localhost.", "[::1", "", "127.0.0.1@x"):
        assert ui.get("/", {**known, "Host": host})[0] in (400, 403)  # tornado itself refuses what is no name
        assert ui.get(f"/?token={ui.place.token}", {"Host": host})[0] in (400, 403)
    for origin in ("http://elsewhere.example", "null", "http://127.0.0.1:1", "file://"):
        assert ui.get("/", {**known, "Host": "127.0.0.1:8082", "Origin": origin})[0] == 403
    for site in ("cross-site", "same-site"):  # another port of this machine is the same site
        assert ui.get("/", {**known, "Sec-Fetch-Site": site})[0] == 403


def test_pages_only_read(ui):
    from luigi.scheduler import RPC_METHODS

    status, headers, _ = ui.get(f"/?token={ui.place.token}")
    cookie = {"Cookie": headers["set-cookie"].split(";")[0]}
    reading = {
        "dep_graph", "fetch_error", "get_running_task_resources", "get_task_progress_percentage",
        "get_task_status_message", "graph", "has_task_history", "inverse_dep_graph", "is_pause_enabled",
        "is_paused", "resource_list", "task_list", "task_search", "worker_list",
    }  # fmt: skip
    for method in RPC_METHODS:
        for known in (cookie, ui.bearer(ui.place.token)):
            for verb in ("GET", "POST"):
                status = ui.get(f"/api/{method}", known, verb, "" if verb == "POST" else None)[0]
                assert (status == 403) == (method not in reading), (method, status)
    cards = 'data={"resource": "cards", "amount": 0}'
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for known in (cookie, ui.bearer(ui.place.token), ui.bearer(ui.place.key)):
        assert ui.get("/api/update_resource", {**known, **form}, "POST", cards)[0] == 403
    assert ui.place.ask("resource_list")[0]["num_total"] == 3


def test_a_run_may_do_what_workers_do_and_stores_no_address_that_a_browser_would_run(ui):
    task = {"worker": "w", "task_id": "T_1", "family": "T", "params": {}, "status": "PENDING"}
    ui.place.ask("add_task", **task, tracking_url="/run/1")
    for address in ("javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", 7):
        with pytest.raises(http.client.HTTPException, match="400"):
            ui.place.ask("add_task", **{**task, "task_id": "T_2"}, tracking_url=address)
    found = ui.place.ask("task_list", status="", upstream_status="")
    assert list(found) == ["T_1"] and found["T_1"]["tracking_url"] == "/run/1"
    for junk in ("data=1", "data={", 'data={"nosuch": 1}', "data=" + "[" * 5000):
        status = ui.get(f"/api/add_task?{quote(junk, safe='=')}", ui.bearer(ui.place.key))[0]
        assert status == 400
    assert ui.get("/api/__init__", ui.bearer(ui.place.key))[0] == 403


def test_other_users_of_the_machine_cannot_read_its_keys(ui):
    file = ui.store / ".ui" / "address.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    if ui.place.socket:
        assert stat.S_IMODE(Path(ui.place.socket).stat().st_mode) == 0o600
    command_line = Path(f"/proc/{ui.process.pid}/cmdline").read_text()
    assert ui.place.token not in command_line and ui.place.key not in command_line
    assert ui.place.token not in repr(ui.place) and ui.place.key not in repr(ui.place)


def test_the_address_of_somebody_else_is_not_asked(tmp_path, monkeypatch):
    (tmp_path / ".ui").mkdir()
    ui_address.write(tmp_path, Place("http://127.0.0.1:1", "a", "b", 2))
    assert ui_address.read(tmp_path) is not None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert ui_address.read(tmp_path) is None
    monkeypatch.undo()
    for text in ("null", "[]", '{"url": 1, "token": 1, "key": 1, "cards": 1}', '{"url": "http://x"}', "{"):
        (tmp_path / ".ui" / "address.json").write_text(text)
        assert ui_address.read(tmp_path) is None


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("no cards", "hands out 0 cards, and 2 are needed"),
        ("dead", "does not answer any more"),
        ("nothing", "gave this run nothing to do"),
    ],
)
def test_a_run_says_why_when_the_scheduler_gives_it_nothing(ui, case, reason, tmp_path, monkeypatch, capsys):
    """What Luigi's own client does is real; its loop is cut short, which would train for minutes."""
    import luigi.cmdline
    import luigi.rpc

    from pipeline import tasks

    monkeypatch.setattr(tasks, "_runs", {})
    for name in ("HAS_REQUESTS", "RequestsFetcher"):
        monkeypatch.setattr(luigi.rpc, name, getattr(luigi.rpc, name))

    def ends_with_nothing(arguments):
        overrides = json.dumps([f"store={tmp_path}", "layout=dp2_mp1_pp1"])
        tasks.prepare(overrides, None)
        assert luigi.rpc.RemoteScheduler("http://localhost").resource_list()[0]["name"] == "cards"
        told = {"no cards": 0, "dead": 3, "nothing": 3}[case]
        resources = [{"name": "cards", "num_total": told}]

        def ask(self, method, **_):
            if case == "dead":
                raise ConnectionRefusedError
            return resources if method == "resource_list" else {"paused": False}

        monkeypatch.setattr(Place, "ask", ask)
        raise SystemExit(1)

    monkeypatch.setattr(luigi.cmdline, "luigi_run", ends_with_nothing)
    monkeypatch.setattr(ui_address, "address", lambda root, cards: ui.place)
    assert main(["run", "--ui", f"store={tmp_path}", "layout=dp2_mp1_pp1"]) == 1
    error = capsys.readouterr().err
    assert "fetch was not built" in error and reason in error
    assert ui.place.key not in error
    (record,) = history.runs(tmp_path).values()
    assert record.failed_stage == "fetch"


def test_a_port_or_socket_that_is_taken_is_told(tmp_path, capsys):
    umask = os.umask(0o027)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        lines = [["--port", str(taken.getsockname()[1])], ["--port", "70000"], ["--socket", str(tmp_path)]]
        lines.append(["--socket", str(tmp_path / ("x" * 200))])
        for line in lines:
            assert main(["ui", *line, f"store={tmp_path}"]) == 2
            assert f"{line[0]}={line[1]}" in capsys.readouterr().err
    assert os.umask(umask) == 0o027  # what is private is the command's, not its process's


def test_the_browser_is_started_without_the_token_on_its_command_line(ui):
    if ui.place.socket:
        pytest.skip("no browser opens a socket")
    seen = ui.store / "seen"
    deadline = time.monotonic() + 20
    while not seen.exists() or not seen.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    words = seen.read_text().strip()
    assert ui.place.token not in words and words.startswith("file://")
    opened = Path(words.removeprefix("file://"))
    assert ui.place.token in opened.read_text() and stat.S_IMODE(opened.stat().st_mode) == 0o600
