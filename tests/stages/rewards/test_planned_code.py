"""The user's code is executed as it was planned, or not at all."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages import __main__
from stages.rewards.planned_code import VARIABLE

ROOT = Path(__file__).parents[3]


def planned(root, files):
    """Write source files and a stage's specification that lists them; return the specification."""
    code = {}
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        code[module] = (str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    specification = root / "spec.json"
    values = {"stage": "grpo", "config": {}, "inputs": {}, "output": "o", "work": "w", "progress_file": "p"}
    specification.write_text(json.dumps({**values, "code": code}))
    return specification


def run(directory, program, specification, *path):
    """Run a program as a child of a stage that has this specification."""
    variables = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path))), VARIABLE: str(specification)}
    command = [sys.executable, "-c", f"import stages.rewards\n{program}"]
    return subprocess.run(command, cwd=directory, env=os.environ | variables, capture_output=True, text=True)


def edit(file, old, new):
    """Change a file without changing its size and time, so that a cache of its compiled code looks valid."""
    before = file.stat()
    file.write_text(file.read_text().replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


IMPORT = "import sys; import mine; print(mine.value, mine.__file__)"


def test_a_module_is_executed_from_its_planned_file_and_no_other(tmp_path):
    files = {"mine.py": "from pack import inner\nvalue = inner.value\n", "pack/__init__.py": ""}
    specification = planned(tmp_path / "first", files | {"pack/inner.py": "value = 1\n"})
    planned(tmp_path / "second", {"mine.py": "value = 2\n"})
    ran = run(tmp_path / "second", IMPORT, specification, tmp_path / "second")
    assert ran.stdout.split() == ["1", str(tmp_path / "first" / "mine.py")], ran.stderr


def test_an_edit_of_the_same_size_and_time_is_not_hidden_by_pythons_cache(tmp_path):
    planned(tmp_path, {"mine.py": "value = 1\n"})
    before = (tmp_path / "mine.py").stat()
    subprocess.run([sys.executable, "-c", "import mine"], cwd=tmp_path, check=True)  # writes the cache
    specification = planned(tmp_path, {"mine.py": "value = 2\n"})
    os.utime(tmp_path / "mine.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(tmp_path, IMPORT, specification).stdout.split()[0] == "2"


@pytest.mark.parametrize("is_running", [False, True])
def test_a_file_that_differs_from_its_digest_is_not_executed(tmp_path, is_running):
    """Whether it is changed before the process starts, or between its start and the import."""
    file, executed = tmp_path / "mine.py", tmp_path / "executed"
    specification = planned(tmp_path, {"mine.py": f"open({str(executed)!r}, 'w')\n"})
    change = f"from pathlib import Path; Path({str(file)!r}).write_text('value = 1')"
    if not is_running:
        subprocess.run([sys.executable, "-c", change], check=True)
    ran = run(tmp_path, f"{change if is_running else ''}\n{IMPORT}", specification)
    assert "mine.py: has been changed, or is gone, since this run was planned" in ran.stderr
    assert ran.returncode == 1 and not executed.exists() and not ran.stdout


@pytest.mark.parametrize("damage", ["edited", "removed"])
def test_a_stage_does_not_start_with_other_code(tmp_path, damage, capsys, monkeypatch):
    specification = planned(tmp_path, {"mine.py": "value = 1\n"})
    monkeypatch.setattr(__main__, "entry", lambda name: lambda context: print("started"))
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    file = tmp_path / "mine.py"
    file.unlink() if damage == "removed" else file.write_text("value = 2\n")
    assert __main__.main(["grpo", str(specification)]) == 1
    shown = capsys.readouterr()
    assert f"error: {file}: has been changed" in shown.err and "started" not in shown.out
    planned(tmp_path, {"mine.py": "value = 2\n"})
    assert __main__.main(["grpo", str(specification)]) == 0
