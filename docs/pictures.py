"""Make the pictures of the documents (`make pictures`): pages of a run and a sweep in Chromium.

Each page is shown in English (docs/report.png) and Chinese (docs/zh/report.png), in light and dark
(report_dark.png). The run and the sweep train four models; what the store has is reused. `python
docs/pictures.py DIR [OVERRIDE...]` writes to another directory and changes the runs, or their store, which is
build/pictures without `store=STORE`. Chinese text needs a font such as Debian's fonts-noto-cjk.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

WIDTH = 960
SCALE = 0.75
"""Pixels of the picture per CSS pixel; the page is laid out for a window of 1280 pixels."""
COLOURS = 256
"""Colours of a picture, with which it has half of its size; its texts and lines look the same."""
HEIGHTS = {"report": 1072, "sweep": 1290}
SWEEP = ("-m", "train.learning_rate=5e-05,2.5e-04", "train.beta=0.0,0.01")
LANGUAGES = {"en": ".", "zh": "zh"}
"""Value of report.language -> directory of its pictures."""
SCHEMES = {"": 1, "_dark": 0}
"""Ending of a picture's name -> Chromium's number of the colour scheme."""


def page_of(command: list[str], word: str) -> Path:
    """Run grpoflow and return the page that its last line names."""
    grpoflow = Path(sys.executable).with_name("grpoflow")
    output = subprocess.run([grpoflow, *command], stdout=subprocess.PIPE, text=True, check=True).stdout
    return Path(output.split(word)[-1].split()[0])


def shoot(page: Path, picture: Path, height: int, scheme: int) -> None:
    """Take a picture of the top of a page in a colour scheme."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("error: chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += ["--disable-background-networking", f"--blink-settings=preferredColorScheme={scheme}"]
        flags += [f"--force-device-scale-factor={SCALE}", f"--user-data-dir={profile}"]
        flags += [f"--window-size={WIDTH / SCALE:.0f},{height / SCALE:.0f}", f"--screenshot={picture}"]
        subprocess.run([chromium, *flags, page.resolve().as_uri()], check=True, timeout=300)
    with Image.open(picture) as taken:
        rare_too = Image.Quantize.MAXCOVERAGE  # a single red word keeps its colour
        smaller = taken.convert("RGB").quantize(COLOURS, rare_too, dither=Image.Dither.NONE)
    smaller.save(picture, optimize=True)


def main(out: Path, overrides: list[str]) -> None:
    """Run, sweep, and write report.png and sweep.png of each language and colour scheme."""
    for language, directory in LANGUAGES.items():
        store = [] if any(each.startswith("store=") for each in overrides) else ["store=build/pictures"]
        common = [*overrides, f"report.language={language}", *store]
        pages = {
            "report": page_of(["run", *common], " report="),
            "sweep": page_of(["sweep", *SWEEP, *common], "\npage "),
        }
        (out / directory).mkdir(exist_ok=True)
        for name, page in pages.items():
            for ending, scheme in SCHEMES.items():
                picture = (out / directory / f"{name}{ending}.png").resolve()
                shoot(page, picture, HEIGHTS[name], scheme)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
