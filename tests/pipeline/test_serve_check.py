"""serve-check at a server, the choice of the run, and the command that serves a model."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.cli import main
from pipeline.store import history
from stages.base.errors import InputError
from stages.grpo.config import greedy
from stages.inference import serving

KEY = "very-secret-key"
DONE = "a" * 16


@pytest.fixture
def server():
    """Yield a server of OpenAI's chat interface that answers in capitals, and the requests that it got."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def reply(self, values, status=200, headers=()):
            body = json.dumps(values).encode()
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            requests.append((self.path, self.headers["Authorization"], None))
            if self.path.startswith("/moved"):
                self.reply({}, 302, [("Location", "http://127.0.0.1:1/v1/models")])
            elif self.path.startswith("/denied"):
                self.reply({"error": f"wrong key {self.headers['Authorization']}"}, 401)
            else:
                self.reply({"data": [{"id": "m"}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.path, self.headers["Authorization"], body))
            text = body["messages"][0]["content"].upper()
            self.reply({"choices": [{"message": {"content": text}}]})

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # serve-check asks many questions at once

    with Server(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", requests
        running.shutdown()


@pytest.mark.parametrize("end", ["", "/v1", "/v1/"])
def test_a_server_answers_in_order_and_greedily(server, end):
    url, requests = server
    questions = [f"q{i}" for i in range(100)]
    done = serving.ask_server(url + end, questions, greedy(12), KEY)
    assert done.answers == [question.upper() for question in questions]
    assert requests[0] == ("/v1/models", f"Bearer {KEY}", None)
    body = requests[1][2]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 12)
    assert "min_tokens" not in body and "repetition_penalty" not in body


@pytest.mark.parametrize(("path", "rule"), [("/moved", "status 302"), ("/denied", "status 401")])
def test_a_key_goes_to_no_other_host_and_into_no_message(server, path, rule):
    with pytest.raises(InputError, match=rule) as error:
        serving.ask_server(server[0] + path, ["q"], greedy(12), KEY)
    assert KEY not in str(error.value)


def test_a_server_that_is_not_there():
    with pytest.raises(InputError, match="start the server"):
        serving.ask_server("http://127.0.0.1:1", ["q"], greedy(12), None)


@pytest.fixture
def store(tmp_path):
    """Return a store with a run that has an export, and a newer one that failed before."""
    from pipeline.config.load import load

    config = load(["engine=verl", "engine.device=cpu", "engine.python=/opt/v/bin/python"]).plain()
    config["engine"]["env_scripts"] = ["/opt/set env.sh"]
    stages = ("export", "evaluate", "fetch_dataset", "tokenize")
    for run, name in (("20260101-000000-aaaaaaaaaa", DONE), ("20260102-000000-bbbbbbbbbb", "b" * 16)):
        artifacts = {stage: f"{stage}/{name}" for stage in stages}
        history.record(tmp_path, run, "started", overrides=[], config=config, artifacts=artifacts, lease=run,
                       target="", force="", config_dir="")  # fmt: skip
    for stage in stages:
        (tmp_path / stage / DONE).mkdir(parents=True)
    (tmp_path / "export" / DONE / "config.json").write_text('{"torch_dtype": "float32"}')
    return tmp_path


def test_last_is_the_newest_run_that_has_an_export(store, capsys):
    assert main(["serve", "last", f"store={store}"]) == 0
    script, line = capsys.readouterr().out.splitlines()
    assert script == ". '/opt/set env.sh'"
    assert f"--model {store}/export/{DONE} " in line and "/opt/v/bin/python -m vllm.entrypoints" in line
    assert "--dtype float32" in line and "--enforce-eager" in line and "VLLM_CPU_KVCACHE_SPACE=4" in line
    assert main(["serve", "20260102", f"store={store}"]) == 1
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (["--url", "http://u:pw@h/x"], "--url"), (["--url", "file:///etc/passwd"], "--url"),
        (["--url", "http://127.0.0.1:1", "--key-env", "NO_SUCH_VARIABLE"], "--key-env"),
    ],
)  # fmt: skip
def test_addresses_and_keys_are_checked_before_anything_is_sent(store, monkeypatch, capsys, options, key):
    (store / "evaluate" / DONE / "result.json").write_text('{"prompts": 1}')
    monkeypatch.setattr(serving, "held_out", lambda *_: [])
    assert main(["serve-check", "last", *options, f"store={store}"]) == 2
    printed = capsys.readouterr().err
    assert key in printed and "pw" not in printed
