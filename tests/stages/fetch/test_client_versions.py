"""What fetch relies on holds for the oldest and the newest client that pyproject.toml allows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
(RANGE,) = re.findall(r'"modelscope-hub([^"]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OLDEST = RANGE.split(",")[0].removeprefix(">=")


@pytest.mark.long
@pytest.mark.parametrize("versions", [f"=={OLDEST}.0", RANGE], ids=["oldest", "newest"])
def test_downloads_work_with_each_end_of_the_range(tmp_path, versions):
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path / "client"),
    ]
    installed = subprocess.run([*pip, f"modelscope-hub{versions}"], capture_output=True, text=True)
    if installed.returncode != 0:
        pytest.skip(f"the package index did not deliver it: {installed.stderr.strip().splitlines()[-1]}")
    path = os.pathsep.join([str(tmp_path / "client"), str(ROOT)])
    tests = [sys.executable, "-m", "pytest", "-p", "no:xdist", "tests/stages/fetch/test_hub.py"]
    done = subprocess.run(
        tests, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:]
