"""Make the pictures of the documents (`make pictures`): pages of a run and a sweep in Chromium.

The run and the sweep train five models; artifacts in build/pictures are reused.
`python docs/pictures.py DIR [OVERRIDE...]` writes to another directory and changes the run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH = 960
SCALE = 0.75
"""Pixels of the picture per CSS pixel; the page is laid out for a window of 1280 pixels."""
HEIGHTS = {"report": 1072, "sweep": 1290}
SWEEP = ("-m", "layout=dp2_mp1_pp1,dp1_mp2_pp1", "train.beta=0.0,0.01")


def page_of(command: list[str], word: str) -> Path:
    """Run grpoflow and return the page that its last line names."""
    grpoflow = Path(sys.executable).with_name("grpoflow")
    output = subprocess.run([grpoflow, *command], stdout=subprocess.PIPE, text=True, check=True).stdout
    return Path(output.split(word)[-1].split()[0])


def shoot(page: Path, picture: Path, height: int) -> None:
    """Take a picture of the top of a page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("error: chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += ["--disable-background-networking", "--blink-settings=preferredColorScheme=1"]
        flags += [f"--force-device-scale-factor={SCALE}", f"--user-data-dir={profile}"]
        flags += [f"--window-size={WIDTH / SCALE:.0f},{height / SCALE:.0f}", f"--screenshot={picture}"]
        subprocess.run([chromium, *flags, page.resolve().as_uri()], check=True, timeout=120)


def main(out: Path, overrides: list[str]) -> None:
    """Run, sweep, and write report.png and sweep.png."""
    common = [*overrides, "store=build/pictures"]
    shoot(page_of(["run", *common], " report="), out.resolve() / "report.png", HEIGHTS["report"])
    shoot(page_of(["sweep", *SWEEP, *common], "\npage "), out.resolve() / "sweep.png", HEIGHTS["sweep"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
