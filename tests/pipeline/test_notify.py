"""A real server on loopback hears real runs."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from pipeline.run import notify

SECRET = "hooks-0123456789"


class Hook(BaseHTTPRequestHandler):
    heard: ClassVar[list[Any]] = []
    status = 200

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        type(self).heard.append((self.path, json.loads(self.rfile.read(length))))
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, format, *values):
        pass


@pytest.fixture
def hook():
    handler = type("Own", (Hook,), {"heard": [], "status": 200})
    server = HTTPServer(("127.0.0.1", 0), handler)
    handler.url = f"http://127.0.0.1:{server.server_port}/{SECRET}"  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def bad(tmp_path):
    """Overrides of a run that fails at once."""
    (tmp_path / "bad").mkdir()
    for name in ("train", "test"):
        (tmp_path / "bad" / f"{name}.jsonl").write_text("not json\n")
    return ["dataset=gsm8k", f"dataset.path={tmp_path / 'bad'}", f"store={tmp_path / 'store'}"]


def typed(*arguments, **env):
    line = [sys.executable, "-m", "pipeline.cli", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, env={**os.environ, **env})


def test_failed_run_is_notified_once_without_showing_the_address(hook, bad, tmp_path):
    done = typed("run", *bad, GRPOFLOW_WEBHOOK=hook.url)
    assert done.returncode == 1
    ((path, output),) = hook.heard
    assert path == f"/{SECRET}"
    assert (output["what"], output["state"], output["stage"]) == ("run", "failed", "fetch_dataset")
    assert output["id"] in output["text"] and "fetch_dataset" in output["text"]
    assert SECRET not in done.stdout + done.stderr
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files and not [file for file in files if SECRET.encode() in file.read_bytes()]


def test_refusing_webhook_is_a_warning(hook, monkeypatch, capsys):
    hook.status = 403
    for address, reason in (
        (hook.url, "HTTP status 403"),
        (f"http://127.0.0.1:9/{SECRET}", "ConnectionError"),
    ):
        monkeypatch.setattr(notify, "_address", address)
        notify.notify("run", "x", "failed")
        output = capsys.readouterr().err
        assert f"was not notified: {reason}" in output and SECRET not in output


def test_webhook_body_template(monkeypatch):
    values = {"what": "run", "id": "x", "state": "finished", "host": "h", "result": {"gain": 0.25}}
    assert notify.body(values)["text"] == "run x on h: finished, gain 0.250"
    monkeypatch.setenv(notify.BODY, '{"msgtype": "text", "text": {"content": "GRPO: {text}"}, "at": [1]}')
    assert notify.body(values) == {
        "msgtype": "text",
        "text": {"content": "GRPO: run x on h: finished, gain 0.250"},
        "at": [1],
    }
