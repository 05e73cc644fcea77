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


def fetch(address, token):
    """Return the final address and the text."""
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.url, answer.read().decode()


def browse(url, profile):
    """Return the page's text after scripts ran; check that the browser's console is empty."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing: apt-get install chromium")
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--virtual-time-budget=4000", f"--user-data-dir={profile}", "--dump-dom", url],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.browser
def test_a_run_is_seen_while_it_goes_on_and_afterwards(without, tmp_path):
    where = f"store={without('evaluate', 'report')}"
    server = subprocess.Popen([*CLI, "ui", "--port", "0", where], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url, token = re.findall(r"(http://\S+)/\?token=(\S+)", server.stdout.readline())[0]
        run = subprocess.Popen([*CLI, "run", where, *CHEAP], stdout=subprocess.PIPE, text=True)
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
        assert any(re.search(r"evaluate</t[hd]>\s*<td[^>]*>.{0,60}running", page, re.S) for page in live)
        final, page = fetch(f"{url}/run/{run_id}", token)
        assert final.endswith("/index.html") and "GRPO run report" in page
        assert run_id in browse(f"{url}/?token={token}", tmp_path / "home")
        assert "GRPO run report" in browse(f"{url}/run/{run_id}?token={token}", tmp_path / "report")
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=10) == 0
    finally:
        server.kill()
        server.wait()
