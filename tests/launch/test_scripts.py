"""Start scripts run by bash, with an msrun that prints how it was called, and with any interpreter."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launch.nodes import run as nodes_run
from launch.nodes.scripts import Node, msrun_script
from launch.nodes.start import Start
from launch.process.job import engine_environment
from launch.process.paced_msrun import PacedPopen
from tests.launch.launchers import executable, local_launcher, make_start, run_job
from tests.processes import wait_until

LOCAL = local_launcher()
MSRUN = """#!/bin/sh
echo "cwd=$PWD pythonpath=$PYTHONPATH quoted=$QUOTED cann=$CANN"
for argument in "$@"; do echo "<$argument>"; done
"""


@pytest.fixture
def start(tmp_path):
    binaries = executable(tmp_path / "venv/bin/msrun", MSRUN).parent
    os.symlink("/bin/true", binaries / "python")
    for name in ("main.py", "rlhf", "mf"):
        (tmp_path / name).mkdir()
    (tmp_path / "set_env.sh").write_text("export CANN=$UNSET_BY_INTENT/cann\n")
    return Start(
        program=(str(tmp_path / "main.py"), "--config=/a b/$HOME.yaml"), workers=2,
        python=str(binaries / "python"), env={"QUOTED": "it's $HOME"},
        python_path=(str(tmp_path / "rlhf"), str(tmp_path / "mf")),
        env_scripts=(str(tmp_path / "set_env.sh"),), container=(), directory=str(tmp_path / "run dir"),
    )  # fmt: skip


def text_of(start, logs, rank=0):
    """Return the start script of a node; a node has 8 cards."""
    nodes = nodes_run.nodes_of(start.workers, LOCAL)
    return msrun_script(start, nodes[rank], nodes, logs)


def run(text, *arguments, code=0, **variables):
    """Run a start script to its end, with an exit code."""
    env = {"PATH": "/usr/bin:/bin", **variables}
    line = ["bash", "-c", text, "node", *arguments]
    done = subprocess.run(line, env=env, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def test_a_single_node_finds_a_port_and_quotes_everything(start, tmp_path):
    done = run(text_of(start, tmp_path / "logs"), MASTER_PORT="4242", PYTHONPATH="/own")
    first, *arguments = done.stdout.splitlines()
    paths = f"{tmp_path}/rlhf:{tmp_path}/mf:/own"
    assert first == f"cwd={tmp_path}/run dir pythonpath={paths} quoted=it's $HOME cann=/cann"
    assert "<--config=/a b/$HOME.yaml>" in arguments
    assert {"<--worker_num=2>", "<--local_worker_num=2>", "<--master_addr=127.0.0.1>"} <= set(arguments)
    assert "<--master_port=4242>" in arguments and not any("node_rank" in text for text in arguments)


def test_a_sourced_script_gets_its_arguments(start, tmp_path):
    script = tmp_path / "set env.sh"
    script.write_text('export CANN="$*"\n')
    sourced = replace(start, env_scripts=(f"{script} --cxx_abi=0 -v",))
    done = run(text_of(sourced, tmp_path / "logs"), MASTER_PORT="4242")
    assert done.stdout.splitlines()[0].endswith("cann=--cxx_abi=0 -v")
    script.unlink()
    missing = run(text_of(sourced, tmp_path / "logs"), code=1, MASTER_PORT="4242")
    assert f"{script}" in missing.stderr and "--cxx_abi" not in missing.stderr


def test_variables_of_the_users_shell_do_not_reach_a_script(start, tmp_path, monkeypatch):
    """Containers and other launchers set some of them."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOG_DIR", "SHARED", "HEARTBEAT_S"):
        monkeypatch.setenv(name, "/elsewhere")
    logs = run_job(tmp_path, start, local_launcher(master_port=4242))
    output = (logs / "start.log").read_text()
    assert "<--master_addr=127.0.0.1>" in output and "<--master_port=4242>" in output
    assert f"<--log_dir={logs}>" in output


def test_several_nodes_need_the_address_of_the_first(start, tmp_path):
    assert [node.workers for node in nodes_run.nodes_of(20, LOCAL)] == [8, 8, 4]
    text = text_of(replace(start, workers=20), tmp_path / "logs", rank=2)
    assert "# Node 2 of 3: workers 16 to 19 of 20." in text
    assert "set MASTER_ADDR" in run(text, code=1).stderr
    done = run(text, MASTER_ADDR="10.0.0.1")
    assert "<--node_rank=2>" in done.stdout and "<--master_addr=10.0.0.1>" in done.stdout


def test_the_first_node_refuses_a_port_in_use(start, tmp_path):
    first, second = (text_of(replace(start, workers=12), tmp_path / "logs", rank) for rank in (0, 1))
    with socket.create_server(("127.0.0.1", 0)) as used:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(used.getsockname()[1])}
        done = run(first, code=1, **address)
        assert "worker_num" not in done.stdout
        assert f"error: MASTER_PORT={address['MASTER_PORT']}" in done.stderr
        assert "<--node_rank=1>" in run(second, **address).stdout
    assert "<--node_rank=0>" in run(first, **address).stdout


def test_every_start_decides_whether_to_resume(start, tmp_path):
    decides = tmp_path / "decides.py"
    os.unlink(tmp_path / "venv/bin/python")
    os.symlink(sys.executable, tmp_path / "venv/bin/python")
    again = (start.program[0], "--again")
    able = replace(start, resumable=(str(decides), "a b"), again=again)
    text = text_of(able, tmp_path / "logs")
    for code, goes_on in ((0, True), (3, False), (0, True)):
        decides.write_text(f"import sys; assert sys.argv[1:] == ['a b']; sys.exit({code})")
        done = run(text)
        assert ("<--again>" in done.stdout) is goes_on
        assert ("<--config=/a b/$HOME.yaml>" in done.stdout) is not goes_on
    decides.write_text("raise OSError('stale file handle')")
    done = run(text, code=1)  # an error is no reason to begin anew
    assert "msrun" not in done.stdout and "worker_num" not in done.stdout


def test_a_later_start_moves_only_the_logs_of_its_workers(start, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("scheduler", "worker_7", "worker_8", "worker_11"):
        (logs / f"{name}.log").write_text(name)
    run(text_of(replace(start, workers=12), logs, rank=1), MASTER_ADDR="10.0.0.1")
    assert sorted(path.name for path in logs.glob("*.log")) == ["scheduler.log", "worker_7.log"]
    assert [path.read_text() for path in sorted((logs / "earlier").iterdir())] == ["worker_11", "worker_8"]


def test_no_worker_outlives_a_stop_nor_the_next_start(start, tmp_path):
    text = text_of(start, tmp_path / "logs")
    msrun = tmp_path / "venv/bin/msrun"
    quick = msrun.read_text()
    # a worker in a session of its own, as msrun's are
    waiting = "#!/bin/sh\nsetsid sleep 300 >/dev/null 2>&1 &\nexec sleep 300 >/dev/null 2>&1\n"
    msrun.write_text(waiting)

    def left():
        grep = ["grep", "-lzF", f"GRPOFLOW_NODE={tmp_path} 0"]
        grep += [str(path) for path in Path("/proc").glob("[0-9]*/environ")]
        return subprocess.run(grep, capture_output=True, text=True).stdout.split()

    def started():
        child = subprocess.Popen(["bash", "-c", text], env={"PATH": "/usr/bin:/bin"})
        wait_until(lambda: len(left()) == 2)  # msrun and its worker
        return child

    killed = started()
    killed.kill()
    killed.wait()
    assert left()
    msrun.write_text(quick)
    another = text_of(start, tmp_path / "another" / "logs")  # in the same working directory
    assert run(another) and left()
    assert run(text) and left() == []  # the next start ends them
    msrun.write_text(waiting)
    stopped = started()
    stopped.terminate()
    assert stopped.wait() == 143
    assert left() == []


CONTAINER = """#!/usr/bin/env bash
exec setsid --wait env -i PATH="$PATH" "$@"
"""
"""Passes on neither signals nor the environment, like docker exec."""


def test_processes_in_a_container_end_with_the_run(tmp_path):
    container, pid_file = executable(tmp_path / "container", CONTAINER), tmp_path / "pid"
    source = f"import os, time; open('{pid_file}', 'w').write(str(os.getpid())); time.sleep(300)"
    started = make_start(tmp_path, source, workers=0, container=(str(container),))

    def interrupt():
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(tmp_path, started, local_launcher(grace_s=0.5), interrupt)
    assert not psutil.pid_exists(int(pid_file.read_text()))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("exit 3", "its check ended with exit code 3"),
        ("printf '\\xbe\\xdc\\xbe\\xf8' >&2; exit 255", "\ufffd"),  # GBK
    ],
)
def test_a_node_whose_check_fails_is_reported(tmp_path, answer, problem):
    ssh = executable(tmp_path / "ssh", f"#!/usr/bin/env bash\ncat >/dev/null\n{answer}\n")
    ((host, text),) = nodes_run.missing([str(ssh)], ["n1"], [], tmp_path)
    assert host == "n1" and text.startswith(problem)


def test_a_node_with_missing_files_starts_nothing(start, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").symlink_to(tmp_path / "elsewhere")
    complete = replace(start, program=(start.program[0], f"--load={model}", f"--save={tmp_path}/to_be_made"))
    text = text_of(complete, tmp_path / "logs")
    (tmp_path / "rlhf").rmdir()
    for argument in ("check", ""):
        done = run(text, argument, code=1, HOSTNAME="n2")
        assert "worker_num" not in done.stdout
        assert done.stderr.splitlines() == [
            f"error: node n2: {tmp_path}/rlhf: must exist on every node, at the same path",
            f"error: node n2: {model}/weights: is a link to {tmp_path}/elsewhere, "
            "which must exist on every node",
        ]
    (tmp_path / "rlhf").mkdir()
    (tmp_path / "elsewhere").touch()
    assert run(text, "check").stderr == "" and run(text, "check").stdout == ""
    second = run(text, "check", code=1, SHARED=f"{tmp_path}/.shared-never-made")
    assert f"{tmp_path}: must be one directory for all nodes" in second.stderr


def test_the_virtual_environment_of_grpoflow_does_not_leak():
    binaries = str(Path(sys.prefix) / "bin")
    base = {"PATH": f"{binaries}:/usr/bin", "PYTHONPATH": "/x", "VIRTUAL_ENV": sys.prefix, "HOME": "/h"}
    assert engine_environment(base) == {"PATH": "/usr/bin", "HOME": "/h"}


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "main.py"
    file.write_text("import os, sys; print(os.environ.get('WRAPPED'), sys.executable, sys.prefix)\n")
    return file


@pytest.fixture
def wrapper(tmp_path):
    """Like conda-run or a script that sources an environment; nothing of an environment lies beside it."""
    text = f'#!/bin/sh\nexport WRAPPED=yes\nexec {sys.executable} "$@"\n'
    return executable(tmp_path / "own place" / "run_in_env.sh", text)


def run_with(program, python, *path, workers=0, code=0):
    """Run the start script of a program with an interpreter."""
    start = Start((str(program),), workers, str(python), {}, (), (), (), str(program.parent / "run"))
    node = Node(0, workers)
    text = msrun_script(start, node, [node], program.parent / "logs")
    return run(text, code=code, PATH=":".join([*map(str, path), "/usr/bin", "/bin"]))


@pytest.mark.parametrize(("workers", "how"), [(0, "path"), (0, "name"), (0, "relative"), (2, "path")])
def test_a_script_around_an_interpreter_runs(program, wrapper, tmp_path, workers, how, monkeypatch):
    monkeypatch.chdir(tmp_path)
    decoy = executable(tmp_path / "decoy/python", "#!/bin/sh\necho decoy; exit 1\n").parent
    named = {"path": str(wrapper), "name": wrapper.name, "relative": f"own place/{wrapper.name}"}[how]
    done = run_with(program, named, *([wrapper.parent] if how == "name" else []), decoy, workers=workers)
    assert done.stdout.splitlines()[-1] == f"yes {sys.executable} {sys.prefix}"
    assert ("Start worker process with rank id:1" in done.stdout) is (workers > 0)  # the real msrun


def test_the_interpreter_of_a_virtual_environment_keeps_its_environment(program, tmp_path):
    """A link to its interpreter would lose it: pyvenv.cfg is looked for beside the name that was started."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python3"
    assert run_with(program, python).stdout.split() == ["None", str(python), str(tmp_path / "env")]


def test_a_broken_interpreter_is_named(program, tmp_path):
    broken = executable(tmp_path / "broken", "#!/bin/sh\nexit 3\n")
    for named, output in (("no_such_python", "must be a program"), (str(broken), f"{broken}: does not run")):
        done = run_with(program, named, code=1)
        assert output in done.stderr and named in done.stderr


def test_embedded_workers_run_in_this_interpreter(tmp_path, monkeypatch):
    """/usr/bin/python3.11 -m pipeline.cli …, say, where `python` is another one."""
    decoy = executable(tmp_path / "python", "#!/bin/sh\necho decoy\n").parent
    monkeypatch.setenv("PATH", str(decoy), prepend=os.pathsep)
    with PacedPopen(["python", "-c", "import sys; print(sys.executable)"], stdout=subprocess.PIPE) as child:
        assert child.communicate()[0].decode().strip() == sys.executable


def test_variables_of_another_job_of_mindspore_are_unset_unless_the_engine_sets_them(start, tmp_path):
    (tmp_path / "show.py").write_text(
        "import os; print(*[os.environ.get(name) for name in ('MS_ROLE', 'RANK_ID')])"
    )
    alone = replace(start, workers=0, program=(str(tmp_path / "show.py"),), python=sys.executable)
    foreign = {"MS_ROLE": "MS_WORKER", "RANK_ID": "5"}
    assert run(text_of(alone, tmp_path / "logs"), **foreign).stdout == "None None\n"
    chosen = replace(alone, env={"RANK_ID": "2"})
    assert run(text_of(chosen, tmp_path / "logs"), **foreign).stdout == "None 2\n"


def test_a_program_that_starts_a_nodes_workers_itself_gets_their_numbers(start, tmp_path):
    names = ("GRPOFLOW_FIRST_WORKER", "GRPOFLOW_WORKERS")
    (tmp_path / "show.py").write_text(f"import os; print(*[os.environ[name] for name in {names}])")
    own = replace(
        start, workers=12, program=(str(tmp_path / "show.py"),), python=sys.executable, each_node=True
    )
    nodes_run.write(own, LOCAL, tmp_path / "scripts", tmp_path / "logs")
    for rank, shown in enumerate(("0 8", "8 4")):
        text = (tmp_path / "scripts" / f"node_{rank}.sh").read_text()
        assert run(text).stdout == f"{shown}\n"
