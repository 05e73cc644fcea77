"""How make finds a Python: those on PATH by speed, else uv, else a message with the ways to get one."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("sh", "mkdir", "touch", "uname")
SCRIPT = "#!/bin/sh\necho {name} $* >>{calls}\n{then}\n"


@pytest.fixture
def make(tmp_path):
    """Return a function: programs that PATH has -> exit code, stdout, and the calls of these programs.

    A python makes an environment if it is asked to, as `uv venv` does.
    """
    program = shutil.which("make") or pytest.skip("needs make")
    path, calls, venv = tmp_path / "bin", tmp_path / "calls", tmp_path / "venv"
    path.mkdir()
    for tool in TOOLS:
        (path / tool).symlink_to(shutil.which(tool) or pytest.skip(f"needs {tool}"))

    def run(*names):
        create = f"case $* in *{venv}) mkdir -p {venv}/bin && touch {venv}/bin/python;; esac"
        for name in names:
            (path / name).write_text(SCRIPT.format(name=name, calls=calls, then=create))
            (path / name).chmod(0o755)
        target = [program, "-C", str(ROOT), f"VENV={venv}", f"{venv}/bin/python"]
        done = subprocess.run(target, env={"PATH": str(path)}, capture_output=True, text=True)
        made = calls.read_text().splitlines() if calls.exists() else []
        return done.returncode, done.stdout, [line for line in made if line.endswith(f" {venv}")]

    return run


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (("python3.12", "python3.11", "python3.10", "uv"), "python3.11 -m venv"),
        (("python3.12", "python3.10"), "python3.10 -m venv"),
        (("python3.13", "python3.12", "uv"), "python3.12 -m venv"),
        (("python3.13", "python3", "uv"), "uv venv --quiet --seed --python 3.11"),
    ],
)
def test_the_python_with_the_fastest_mindspore_is_taken(make, tmp_path, names, chosen):
    code, _, calls = make(*names)
    assert code == 0
    assert calls == [f"{chosen} {tmp_path / 'venv'}"]


def test_without_a_python_three_ways_to_get_one_are_named(make):
    code, output, calls = make("python3.13")
    assert code != 0 and not calls
    assert all(way in output for way in ("apt-get install python3-venv", "uv (", "conda create"))
