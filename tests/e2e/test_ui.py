"""`grpoflow ui` with a real run and a real browser."""

import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.e2e.conftest import CHEAP

CLI = [sys.executable, "-m", "pipeline.cli"]


@pytest.fixture
def store(without):
    return without("evaluate", "report")


@pytest.fixture
def ui(store):
    """URL and token of a server, and its process."""
    server = subprocess.Popen(
        [*CLI, "ui", "--port", "0", f"store={store}"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    printed = re.search(r"(http://\S+)/\?token=(\S+)", server.stdout.readline())
    assert printed is not None
    yield printed[1], printed[2], server
    server.kill()
    server.wait()


def fetch(address, token):
    """Return the final address and the text."""
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.url, answer.read().decode()


def browse(url, profile):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing: apt-get install chromium")
    return subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--virtual-time-budget=4000", f"--user-data-dir={profile}", "--dump-dom", url],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip


@pytest.mark.browser
def test_a_run_is_seen_while_it_goes_on_and_afterwards(ui, store, tmp_path):
    url, token, server = ui
    run = subprocess.Popen([*CLI, "run", f"store={store}", *CHEAP], stdout=subprocess.PIPE, text=True)
    pages = set()
    while run.poll() is None:
        running = re.search(r'href="/run/([\w-]+)">[^§]*?class="state running"', fetch(url, token)[1])
        if running is not None:
            pages.add(fetch(f"{url}/run/{running[1]}", token)[1])
        time.sleep(0.1)
    assert run.stdout is not None
    result = run.stdout.read()
    assert run.returncode == 0, result
    run_id = result.split("run=")[1].split()[0]
    live = [page for page in pages if f"Run {run_id}" in page and 'http-equiv="refresh"' in page]
    assert any(re.search(r"evaluate</t[hd]>\s*<td[^>]*>.{0,60}running", page, re.S) for page in live), len(
        live
    )

    final, page = fetch(f"{url}/run/{run_id}", token)
    assert final.endswith("/index.html") and "GRPO run report" in page
    home = browse(f"{url}/?token={token}", tmp_path / "home")
    assert run_id in home.stdout and "CONSOLE" not in home.stderr, home.stderr
    seen = browse(f"{url}/run/{run_id}?token={token}", tmp_path / "report")
    assert "GRPO run report" in seen.stdout and "CONSOLE" not in seen.stderr, seen.stderr

    server.send_signal(signal.SIGINT)
    assert server.wait(timeout=10) == 0
