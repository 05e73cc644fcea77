"""The webhook: a real server on loopback receives the end of real runs."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pipeline.run import notify

SECRET = "hooks-0123456789"


@pytest.fixture
def hook():
    """A server that refuses: its address, and the path and content of each request that it received."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            requests.append((self.path, json.loads(self.rfile.read(length))))
            self.send_response(403)
            self.end_headers()

        def log_message(self, format, *values):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{SECRET}", requests
        server.shutdown()


def test_a_failed_run_is_notified_once_without_showing_the_address(hook, tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("not json\n")
    overrides = ["dataset=gsm8k", f"dataset.path={tmp_path}", f"store={tmp_path / 'store'}"]
    line = [sys.executable, "-m", "pipeline.cli", "run", *overrides]
    environment = {**os.environ, "GRPOFLOW_WEBHOOK": hook[0]}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 1 and "was not notified: HTTP status 403" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
    ((path, output),) = hook[1]
    assert path == f"/{SECRET}"
    assert (output["what"], output["state"], output["stage"]) == ("run", "failed", "fetch_dataset")
    assert output["id"] in output["text"] and "fetch_dataset" in output["text"]


def test_webhook_body_template(monkeypatch):
    values = {"what": "run", "id": "x", "state": "finished", "host": "h", "result": {"gain": 0.25}}
    text = notify.body(values)["text"]
    monkeypatch.setenv(notify.BODY, '{"msgtype": "text", "text": {"content": "GRPO: {text}"}, "at": [1]}')
    assert notify.body(values) == {"msgtype": "text", "text": {"content": f"GRPO: {text}"}, "at": [1]}
    assert "gain 0.250" in text
