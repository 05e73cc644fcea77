"""`grpoflow ui` with a real run and a real browser."""

import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.conftest import CHEAP
from tests.pipeline.test_ui import served


def browse(url, profile):
    """Return the page's text after scripts ran; check that the browser's console is empty."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing: apt-get install chromium")
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--virtual-time-budget=4000", f"--user-data-dir={profile}", "--dump-dom", url],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.browser
def test_a_run_is_seen_while_it_goes_on_and_afterwards(without, tmp_path):
    store = without("evaluate", "report")
    line = [sys.executable, "-m", "pipeline.cli", "run", f"store={store}", *CHEAP]
    with served(store) as ui:
        run = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        pages = set()
        while run.poll() is None:
            overview = ui.get("/", ui.bearer())[2]
            running = re.search(r'href="(/run/[\w-]+)">[^§]*?class="state running"', overview)
            if running is not None:
                pages.add(ui.get(running[1], ui.bearer())[2])
            time.sleep(0.1)
        assert run.stdout is not None
        result = run.stdout.read()
        assert run.returncode == 0, result
        run_id = result.split("run=")[1].split()[0]
        live = [page for page in pages if f"Run {run_id}" in page and 'http-equiv="refresh"' in page]
        assert any(re.search(r"evaluate</t[hd]>\s*<td[^>]*>.{0,60}running", page, re.S) for page in live)
        report = ui.get(f"/run/{run_id}", ui.bearer())[1]["location"]
        assert report.endswith("/index.html") and "GRPO run report" in ui.get(report, ui.bearer())[2]
        assert run_id in browse(f"http://127.0.0.1:{ui.port}/?token={ui.token}", tmp_path / "home")
        ui.process.send_signal(signal.SIGINT)
        assert ui.process.wait(timeout=60) == 0
