"""Processes of a stage and of msrun: output, exit codes, and the end of all of them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from launch.errors import LaunchError, ProcessFailed
from launch.process import child, paced_msrun, tree
from launch.process import job as msrun
from launch.process.paced_msrun import PacedPopen
from tests.launch.launchers import local_launcher
from tests.processes import wait_until

# A tree as msrun makes it: the child starts a grandchild in a session of its own, which ignores SIGTERM.
TREE = """
import pathlib, subprocess, sys, time
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
code = ignore + "print('up', flush=True); time.sleep(300)"
grandchild = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
grandchild.stdout.readline()
pathlib.Path(sys.argv[1]).write_text(str(grandchild.pid))
time.sleep(300)
"""


def living(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_for(path):
    wait_until(lambda: path.exists() and path.read_text(), describe=lambda: f"{path} was not written")
    return int(path.read_text())


def test_output_exit_and_peak_memory(tmp_path):
    log = tmp_path / "log"
    code = "import time; block = bytearray(200 << 20); print('hello'); time.sleep(1.5)"
    outcome = child.run([sys.executable, "-c", code], job="test-output", log=log)
    assert log.read_text() == "hello\n"
    assert 0.19 < outcome.peak_memory_gib < 0.4
    assert 1.5 <= outcome.ended - outcome.started < 60


def test_a_clock_that_is_set_back_gives_no_negative_time(tmp_path, monkeypatch):
    clock = iter((1e6, *[0.0] * 1000))
    monkeypatch.setattr(time, "time", lambda: next(clock))
    outcome = child.run([sys.executable, "-c", ""], job="test-clock", log=tmp_path / "log")
    assert outcome.started == 1e6 and 0 < outcome.ended - outcome.started < 60


def test_failure_carries_exit_code_and_last_lines(tmp_path):
    code = "import sys; [print(i) for i in range(100)]; sys.exit(7)"
    with pytest.raises(ProcessFailed) as failure:
        child.run([sys.executable, "-c", code], job="test-failure", log=tmp_path / "log")
    assert failure.value.exit_code == 7
    assert failure.value.tail == [str(i) for i in range(80, 100)]


def test_a_program_that_cannot_be_started_and_a_real_time_signal_are_reported(tmp_path):
    with pytest.raises(LaunchError, match="/no/such/program: cannot be started: No such file"):
        child.run(["/no/such/program"], job="test-missing", log=tmp_path / "log")
    with pytest.raises(ProcessFailed) as failure:
        child.run(["bash", "-c", "kill -40 $$"], job="test-signal", log=tmp_path / "log")
    assert failure.value.exit_code == -40


@pytest.mark.parametrize("end", [LaunchError, KeyboardInterrupt])
def test_a_timeout_and_an_interrupt_end_all_processes(tmp_path, monkeypatch, end):
    pid_file, passed = tmp_path / "pid", [0.0]
    clock = SimpleNamespace(time=time.time, sleep=time.sleep, monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(child, "time", clock)

    def end_when_tree_runs():
        if pid_file.exists() and pid_file.read_text():
            if end is KeyboardInterrupt:
                raise KeyboardInterrupt
            passed[0] = 3601

    tree, job = [sys.executable, "-c", TREE, str(pid_file)], f"test-end-{tmp_path}"
    with pytest.raises(end, match="not finished after 3600 s" if end is LaunchError else None):
        child.run(
            tree, job=job, log=tmp_path / "log", timeout_s=3600, grace_s=0.5, on_poll=end_when_tree_runs
        )
    assert not living(wait_for(pid_file))


STARTER = """
import os, sys
del sys.path[0]  # the working directory
from pathlib import Path
from launch.process import child
child.run([sys.executable, "-c", os.environ["TREE"], sys.argv[1]], job=sys.argv[2], log=Path(sys.argv[3]))
"""


@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
def test_a_killed_process_leaves_no_child_and_a_later_start_lives_on(tmp_path, group):
    """kill -9 of what runs a stage: the trainer and its grandchildren end by themselves."""
    pid_file, job = tmp_path / "pid", f"test-killed-{tmp_path}"
    line = [sys.executable, "-c", STARTER, str(pid_file), job, str(tmp_path / "log")]
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "psutil.py").write_text("raise AssertionError")
    environment = {**os.environ, "TREE": TREE}
    starter = subprocess.Popen(line, env=environment, start_new_session=True, cwd=tmp_path / "here")
    grandchild = wait_for(pid_file)
    (trainer,) = (
        process for process in psutil.Process(starter.pid).children() if str(pid_file) in process.cmdline()
    )
    later = subprocess.Popen(["sleep", "600"], env={**os.environ, tree.JOB_VARIABLE: job})
    try:
        os.killpg(starter.pid, signal.SIGKILL) if group else starter.kill()
        starter.wait()
        wait_until(
            lambda: not living(grandchild) and not living(trainer.pid),
            describe=lambda: "the trainer outlived the process that started it",
        )
        time.sleep(0.5)
        assert living(later.pid)
    finally:
        later.kill()
        later.wait()


def test_tail_survives_bytes_that_are_not_text(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe broken\n" + b"x" * 100_000 + b"\nlast\n")
    assert child.tail(log, lines=1) == ["last"]
    assert child.tail(tmp_path / "absent") == []


def test_a_jobs_processes_and_its_session_are_ended_and_no_others(tmp_path):
    """A process may hide the variable with the job's name, but stays in the session."""
    pid_file, job = tmp_path / "pid", f"test-session-{tmp_path}"
    code = f"env -u {tree.JOB_VARIABLE} sh -c 'echo $$ > {pid_file}; exec sleep 300' & sleep 300"
    leader, other = (
        subprocess.Popen(command, env={**os.environ, tree.JOB_VARIABLE: name}, start_new_session=True)
        for command, name in ((["bash", "-c", code], job), (["sleep", "300"], f"{job}-other"))
    )
    hidden = wait_for(pid_file)
    try:
        assert set(tree.end_job(job, grace_s=0.0)) >= {leader.pid, hidden}
        leader.wait()
        assert not living(hidden) and living(other.pid)
    finally:
        other.kill()
        other.wait()


LOCAL = local_launcher(timeout_s=120, grace_s=2)
# A worker of real msrun, without MindSpore: msrun itself only needs its children to end.
WORKER = """
import os, sys
role, rank = os.environ["MS_ROLE"], os.environ.get("RANK_ID")
print("hello from", role, rank, os.environ["MS_SCHED_PORT"])
if role == "MS_WORKER" and rank == sys.argv[1]:
    sys.exit("error: worker told to fail")
"""


def run_two(directory, source, argument="", launcher=LOCAL):
    """Run a program with two workers."""
    (directory / "worker.py").write_text(source)
    program = [str(directory / "worker.py"), argument]
    msrun.run(program, workers=2, job=str(directory), log_dir=directory, launcher=launcher)


def test_the_failing_worker_is_shown_first(tmp_path):
    with pytest.raises(ProcessFailed) as failure:
        run_two(tmp_path, WORKER, "1")
    assert failure.value.log.name == "worker_1.log"
    assert failure.value.tail[-1] == "error: worker told to fail"


def test_workers_of_this_machine_meet_on_it_whatever_the_other_machines_address(tmp_path):
    run_two(tmp_path, WORKER, launcher=local_launcher(name="ssh", master_addr="192.0.2.1"))
    with pytest.raises(LaunchError, match=r"launcher\.master_addr=192\.0\.2\.1: cannot be bound"):
        msrun.find_port("192.0.2.1", None)


FOREIGN = {
    "MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "16", "MS_SCHED_HOST": "192.0.2.1", "MS_SCHED_PORT": "9",
    "MS_NODE_ID": "7", "MS_SIMULATION_LEVEL": "1", "RANK_ID": "5", "RANK_TABLE_FILE": "/nowhere/table.json",
    "RANK_SIZE": "16",
}  # fmt: skip
"""Variables of a job of MindSpore in the user's shell, as its documents say to set them."""
SHOW = """
import json, os, pathlib, sys
directory, *names = sys.argv[1].split(",")
values = {name: os.environ[name] for name in [*names, "GRPOFLOW_MEETING_PLACE"] if name in os.environ}
print(json.dumps(values), file=open(f"{directory}/{os.environ.get('RANK_ID', 'one')}.json", "w"))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_variables_of_another_job_of_mindspore_do_not_reach_the_workers(workers, tmp_path, monkeypatch):
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "worker.py").write_text(SHOW)
    program = [str(tmp_path / "worker.py"), ",".join([str(tmp_path), *FOREIGN])]
    msrun.run(program, workers=workers, job=str(tmp_path), log_dir=tmp_path, launcher=LOCAL)
    shown = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
    assert len(shown) >= workers
    assert not [values for values in shown if FOREIGN.items() & values.items() - {("MS_ROLE", "MS_WORKER")}]


@pytest.mark.parametrize("name", ["t", "x" * 100, None])
def test_sockets_are_where_temporary_files_are_unless_that_path_is_too_long(name, tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory() as short:
        temporary = Path(short, name or "missing")
        if name is not None:
            temporary.mkdir()
        monkeypatch.setenv("TMPDIR", str(temporary))
        run_two(tmp_path, SHOW, str(tmp_path))
        used = Path(json.loads((tmp_path / "0.json").read_text())["GRPOFLOW_MEETING_PLACE"])
    assert (used.parent == temporary) is (name == "t")
    assert not used.exists()


def test_without_a_place_for_sockets_the_remedy_is_named(tmp_path):
    """The directories exist nowhere; as root, no directory is unwritable."""
    source = Path(paced_msrun.__file__).read_text().replace('"/', '"/nowhere/')
    (tmp_path / "paced.py").write_text(source.replace("tempfile.gettempdir()", '"/nowhere"'))
    done = subprocess.run([sys.executable, tmp_path / "paced.py", "msrun"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: TMPDIR: ")


def test_a_scheduler_without_workers_is_ended(tmp_path):
    """MindSpore's looks every five seconds whether its workers have left."""
    run_two(tmp_path, "import os, time; time.sleep(600 * (os.environ['MS_ROLE'] == 'MS_SCHED'))")


def test_a_scheduler_of_remote_workers_ends_by_itself(monkeypatch):
    monkeypatch.setattr(PacedPopen, "workers", 0)
    monkeypatch.setenv("MS_WORKER_NUM", "2")
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")
    scheduler = PacedPopen(["python", "-c", "import time; time.sleep(0.5); raise SystemExit(7)"])
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    assert PacedPopen(["python", "-c", ""]).wait() == 0
    assert scheduler.wait() == 7
