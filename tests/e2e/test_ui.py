"""`grpoflow ui` with a real run: Luigi's own scheduler, its pages and history, and a real browser."""

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from urllib.parse import quote

import pytest

from pipeline.store.ui_address import Place, write
from tests.e2e.conftest import CHEAP

CLI = [sys.executable, "-m", "pipeline.cli"]


@pytest.fixture
def store(without):
    return without("evaluate", "report")


token = ""


@pytest.fixture
def ui(store):
    """Its address and process; `fetch` then has its token."""
    global token
    with (store.parent / "ui").open("w") as out:
        server = subprocess.Popen([*CLI, "ui", "--port", "0", f"store={store}"], stdout=out, text=True)
    address = store / ".ui" / "address.json"
    deadline = time.monotonic() + 60
    while not address.exists():
        assert server.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    told = json.loads(address.read_text())
    token = told["token"]
    yield told["url"], server
    server.kill()
    server.wait()


def fetch(address):
    """Final address and text."""
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.url, answer.read().decode()


def asked(url, method, **values):
    return json.loads(fetch(f"{url}/api/{method}?data={quote(json.dumps(values))}")[1])["response"]


def seen(url, flags, profile):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing: apt-get install chromium")
    return subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--virtual-time-budget=4000", f"--user-data-dir={profile}", *flags, url],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip


@pytest.mark.browser
def test_a_run_is_seen_while_it_goes_on_and_afterwards(ui, store, tmp_path):
    pytest.importorskip("sqlalchemy")
    url, server = ui
    run = subprocess.Popen([*CLI, "run", "--ui", f"store={store}", *CHEAP], stdout=subprocess.PIPE, text=True)
    tracked, told = set(), set()
    while run.poll() is None:
        for task in asked(url, "task_list", status="RUNNING", upstream_status="").values():
            tracked.add(task["tracking_url"])
            told.add((task["name"], task["status_message"], task["progress_percentage"]))
        time.sleep(0.1)
    assert run.stdout is not None
    result = run.stdout.read()
    assert run.returncode == 0, result
    run_id = result.split("run=")[1].split()[0]
    assert f"/run/{run_id}" in tracked
    assert any(stage == "Evaluate" and message and percent for stage, message, percent in told), told

    done = asked(url, "task_list", status="DONE", upstream_status="")
    assert {task["name"] for task in done.values()} >= {"Evaluate", "Report", "RunGRPO"}
    assert "Evaluate" in fetch(f"{url}/history")[1]
    final, page = fetch(f"{url}/run/{run_id}")
    assert final.endswith("/index.html") and "GRPO run report" in page

    home = seen(f"{url}/?token={token}", ["--dump-dom"], tmp_path / "home")
    assert run_id in home.stdout and "CONSOLE" not in home.stderr, home.stderr
    luigi = seen(f"{url}/static/visualiser/index.html?token={token}", ["--dump-dom"], tmp_path / "luigi")
    assert "fingerprint=" in luigi.stdout

    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=10) == 0
    assert not (store / ".ui" / "address.json").exists()


def test_only_what_the_pages_lead_to_is_served(ui, store):
    url, server = ui
    for path in ("/run/nobody", "/runs.jsonl", "/report/../runs.jsonl", "/report/%2e%2e/index.html"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(f"{url}{path}")
    server.send_signal(signal.SIGINT)
    assert server.wait(timeout=10) == 0


def test_a_run_without_a_ui_or_with_too_few_cards_says_so(store):
    line = [*CLI, "run", "--ui", f"store={store}", *CHEAP]
    alone = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert alone.returncode == 2 and f"grpoflow ui store={store}" in alone.stderr
    (store / ".ui").mkdir(exist_ok=True)
    dead = Place("http://127.0.0.1:1", "token", "key", 1)
    write(store, dead)
    small = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert small.returncode == 2 and "start it with --cards 2" in small.stderr
    write(store, replace(dead, cards=2))
    silent = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert silent.returncode == 2 and "does not answer at http://127.0.0.1:1" in silent.stderr
