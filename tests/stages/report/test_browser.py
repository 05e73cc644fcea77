"""The page in a real browser: no console error, pictures, light and dark."""

import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from stages.report.config import ReportConfig
from stages.report.stage import write_report

pytestmark = pytest.mark.browser


@pytest.fixture
def browse(tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        warnings.warn("chromium is missing: the report was NOT looked at in a browser", stacklevel=2)
        pytest.skip("chromium is missing: apt-get install chromium")

    def run(page: Path, *flags: str, dark: bool = False) -> subprocess.CompletedProcess[str]:
        profile = tmp_path / f"profile{len(list(tmp_path.iterdir()))}"
        return subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--hide-scrollbars", "--enable-logging=stderr", "--window-size=1200,1600",
             f"--user-data-dir={profile}",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}", *flags, page.as_uri()],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip

    return run


def pixels(file: Path):
    image = pytest.importorskip("PIL.Image").open(file).convert("L")
    histogram = image.histogram()
    return sum(i * n for i, n in enumerate(histogram)) / sum(histogram), len([n for n in histogram if n])


def test_no_console_error_and_both_colour_schemes(run, tmp_path, browse):
    page = write_report(run, tmp_path, ReportConfig(title=None, samples=12, text_limit=1500))
    light, dark = tmp_path / "light.png", tmp_path / "dark.png"
    for target, is_dark in ((light, False), (dark, True)):
        seen = browse(page, f"--screenshot={target}", dark=is_dark)
        assert "CONSOLE" not in seen.stderr, seen.stderr
    (light_mean, light_shades), (dark_mean, dark_shades) = pixels(light), pixels(dark)
    assert light_mean > 200 and dark_mean < 70
    assert light_shades > 100 and dark_shades > 100, "an empty page has few shades"


def test_a_console_error_would_be_seen(tmp_path, browse):
    page = tmp_path / "broken.html"
    page.write_text("<script>console.error('seen')</script>")
    assert "CONSOLE" in browse(page, "--dump-dom").stderr


def test_wide_content_does_not_widen_a_narrow_page(run, tmp_path, browse):
    page = write_report(run, tmp_path, ReportConfig(title=None, samples=12, text_limit=1500))
    # The page itself forbids scripts, so a copy without that line measures itself.
    source = page.read_text(encoding="utf-8")
    policy = source[source.index('<meta http-equiv="Content-Security-Policy"') :].split("\n")[0]
    measure = "document.title = 'wide ' + (document.documentElement.scrollWidth - innerWidth)"
    probe = f"<script>{measure}</script></body>"
    copy = tmp_path / "probe.html"
    copy.write_text(source.replace(policy, "").replace("</body>", probe), encoding="utf-8")
    assert "<title>wide 0</title>" in browse(copy, "--dump-dom", "--window-size=500,900").stdout
