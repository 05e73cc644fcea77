"""engine.python is what runs, whatever its file is called: in every script, by msrun, and under Ray."""

import os
import subprocess
import sys

import pytest

from launch.nodes.scripts import Node, script
from launch.nodes.start import Start
from launch.process.paced_msrun import PacedPopen


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "main.py"
    file.write_text("import os, sys; print(os.environ.get('WRAPPED'), sys.executable, sys.prefix)\n")
    return file


def executable(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


@pytest.fixture
def wrapper(tmp_path):
    """Like conda-run or a script that sources an environment; nothing of an environment lies beside it."""
    text = f'#!/bin/sh\nexport WRAPPED=yes\nexec {sys.executable} "$@"\n'
    return executable(tmp_path / "own place" / "run_in_env.sh", text)


def start_of(program, python, workers):
    return Start((str(program),), workers, python, {}, (), (), (), str(program.parent / "run"))


def run(text, *path, **variables):
    env = {"PATH": ":".join([*map(str, path), "/usr/bin", "/bin"]), **variables}
    return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("workers", "how"), [(0, "path"), (0, "name"), (0, "relative"), (2, "path")])
def test_a_script_around_an_interpreter_runs(program, wrapper, tmp_path, workers, how, monkeypatch):
    monkeypatch.chdir(tmp_path)
    decoy = executable(tmp_path / "decoy/python", "#!/bin/sh\necho decoy; exit 1\n").parent
    named = {"path": str(wrapper), "name": wrapper.name, "relative": f"own place/{wrapper.name}"}[how]
    node = Node(0, workers)
    text = script(start_of(program, named, workers), node, [node], tmp_path / "logs")
    done = run(text, *([wrapper.parent] if how == "name" else []), decoy)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"yes {sys.executable} {sys.prefix}"
    assert ("Start worker process with rank id:1" in done.stdout) is (workers > 0)  # the real msrun


def test_the_interpreter_of_a_virtual_environment_keeps_its_environment(program, tmp_path):
    """A link to its interpreter would lose it: pyvenv.cfg is looked for beside the name that was started."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    node, python = Node(0, 0), tmp_path / "env/bin/python3"
    text = script(start_of(program, str(python), 0), node, [node], tmp_path / "logs")
    assert run(text).stdout.split() == ["None", str(python), str(tmp_path / "env")]


def test_a_broken_interpreter_is_named(program, tmp_path):
    node = Node(0, 0)
    broken = executable(tmp_path / "broken", "#!/bin/sh\nexit 3\n")
    for named, output in (("no_such_python", "must be a program"), (str(broken), f"{broken}: does not run")):
        done = run(script(start_of(program, named, 0), node, [node], tmp_path / "logs"))
        assert done.returncode == 1 and output in done.stderr and named in done.stderr


def test_embedded_workers_run_in_this_interpreter(tmp_path, monkeypatch):
    """/usr/bin/python3.11 -m pipeline.cli …, say, where `python` is another one."""
    decoy = executable(tmp_path / "python", "#!/bin/sh\necho decoy\n").parent
    monkeypatch.setenv("PATH", str(decoy), prepend=os.pathsep)
    with PacedPopen(["python", "-c", "import sys; print(sys.executable)"], stdout=subprocess.PIPE) as child:
        assert child.communicate()[0].decode().strip() == sys.executable
