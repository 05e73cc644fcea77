"""The user's code is executed as it was planned, or not at all."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages import __main__
from stages.base.errors import InputError
from stages.rewards.config import RewardConfig
from stages.rewards.planned_code import VARIABLE
from stages.rewards.process import PROCESS
from stages.rewards.score import prepare, score_each

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


USER = RewardConfig(("mine:f",), (1.0,), None, timeout_s=2.0)
SCORES = """
def f(completions, solutions):
    if completions == ["wait"]:
        import time
        time.sleep(60)
    if completions == ["late"]:
        import later
    return [1.0] * len(completions)
"""


@pytest.fixture
def scoring(tmp_path, monkeypatch):
    """A directory that is first on the path, in a process whose stage has planned code."""
    files = {"mine.py": SCORES, "later.py": "value = 1\n"}
    monkeypatch.setenv(VARIABLE, str(planned(tmp_path / "first", files)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    PROCESS.close()
    yield tmp_path
    PROCESS.close()


def test_the_scoring_process_executes_the_planned_files_and_this_one_none(scoring):
    planned(scoring, {"mine.py": "f = None\n", "stages.py": "1 / 0\n", "conf.py": "1 / 0\n"})
    prepare(USER)
    assert score_each(USER, ["a", "late"], ["", ""]).parts == {"mine:f": [1.0, 1.0]}
    assert "mine" not in sys.modules and "later" not in sys.modules


@pytest.mark.parametrize("name", ["mine.py", "later.py"])
@pytest.mark.parametrize("first", [None, "now", "wait"])
def test_functions_are_not_called_after_a_change(scoring, name, first):
    """Neither when the process starts, nor when it starts again, nor when a function imports a module."""
    if first:
        prepare(USER)
        score_each(USER, [first], [""])
    edit(scoring / "first" / name, "1", "2")
    if (name, first) == ("mine.py", "now"):  # it is imported already
        assert score_each(USER, ["late"], [""]).parts == {"mine:f": [1.0]}
        return
    with pytest.raises(InputError, match=rf"{name}: has been changed.*; repeat the command"):
        score_each(USER, ["late"], [""])
