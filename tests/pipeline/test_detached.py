"""Detached runs as real processes: they survive their terminal, and `stop` ends them, gracefully or not."""

import os
import pty
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pipeline.run import detached
from pipeline.store import history
from tests.processes import unanswered_download, wait_until

PATIENCE_S = 240.0
PROGRAM = [sys.executable, "-m", "pipeline.cli"]


@pytest.fixture
def waiting(tmp_path):
    """A run that waits for the answer of a server in its first stage; yields its arguments."""
    with unanswered_download() as overrides:
        words = ["--only", "fetch_dataset", *overrides, f"store={tmp_path / 'store'}"]
        yield words
    for process in processes(tmp_path / "store"):
        process.kill()


def processes(store):
    """The commands that run something in a store, without their children between fork and exec."""
    found = {}
    for process in psutil.process_iter():
        try:
            words, parent = process.cmdline(), process.ppid()
        except psutil.Error:
            continue
        if f"store={store}" in words and {"run", "sweep"} & set(words) and process.status() != "zombie":
            found[process] = parent
    pids = {process.pid for process in found}
    return [process for process, parent in found.items() if parent not in pids]


def ended(*words, code=0):
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def state(store, run):
    return history.find(store, run).state


def begun(store):
    """The stages that were started, by the logs of their attempts."""
    return [path.parent.name.partition("-")[0] for path in (store / ".logs").glob("*/spec.json")]


def test_a_detached_run_survives_its_terminal_and_is_stopped_from_another_one(waiting, tmp_path):
    store = tmp_path / "store"
    child, leader = pty.fork()
    if child == 0:  # a shell's place: the terminal's session
        os.execv(sys.executable, [*PROGRAM, "run", "--detach", *waiting])
    text, deadline = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            text += (new := os.read(leader, 4096))
        except OSError:
            break
        if not new:
            break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, text
    os.close(leader)  # the terminal is closed
    run = text.decode().splitlines()[0].strip()
    assert state(store, run) == "running" and history.find(store, run).process["host"]
    wait_until(lambda: begun(store) == ["fetch_dataset"], PATIENCE_S)
    (process,) = processes(store)
    assert process.pid == history.find(store, run).process["pid"] and process.terminal() is None
    assert run in ended("watch", run, "--once", f"store={store}").stdout
    assert "fetch_dataset: started" in ended("logs", run, "--run", f"store={store}").stdout
    said = ended("stop", run, f"store={store}").stdout
    assert f"run {run}: interrupted" in said
    assert processes(store) == [] and history.find(store, run).failed_stage == "fetch_dataset"
    assert "does not run: interrupted" in ended("stop", run, f"store={store}").stdout


def test_a_run_in_another_terminal_that_does_not_answer_is_killed(waiting, tmp_path):
    store = tmp_path / "store"
    process = subprocess.Popen([*PROGRAM, "run", *waiting], stderr=subprocess.DEVNULL)
    wait_until(lambda: begun(store) == ["fetch_dataset"], PATIENCE_S, process)
    process.send_signal(signal.SIGSTOP)  # it cannot handle SIGTERM
    ended("stop", "last", "--grace", "1", f"store={store}")
    assert process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    run = history.find(store, "last")
    assert (run.state, run.message) == ("interrupted", "killed by grpoflow stop after 1 s")
    assert processes(store) == []


def test_a_run_whose_machine_was_lost_has_died(waiting, tmp_path):
    store = tmp_path / "store"
    run = ended("run", "--detach", *waiting).stdout.strip()
    (process,) = processes(store)
    process.kill()
    wait_until(lambda: state(store, run) == "died", PATIENCE_S)
    assert "does not run: died" in ended("stop", run, f"store={store}").stdout


def test_a_sweep_is_detached_and_stopped_as_a_whole(waiting, tmp_path):
    store = tmp_path / "store"
    sweep = ended("sweep", "--detach", *waiting, "dataset.train_rows=100,200").stdout.strip()
    points = detached.of_sweep(history.runs(store).values(), sweep)
    assert len(points) == 2 and {run.state for run in points} == {"running"}
    message = ended("stop", points[0].id, f"store={store}", code=2).stderr
    assert f"grpoflow stop {sweep}" in message
    ended("stop", sweep, f"store={store}")
    assert {state(store, run.id) for run in points} == {"interrupted"} and processes(store) == []


def test_what_cannot_begin_fails_at_once(tmp_path):
    store = tmp_path / "store"
    done = ended("run", "--detach", "train.stepz=1", f"store={store}", code=2)
    assert "train.stepz" in done.stderr and done.stdout == "" and not store.exists()


def test_a_run_of_another_machine_is_not_stopped_here(tmp_path, capsys):
    run = "20260101-000000-aaaa"
    history.record(
        tmp_path, run, "started", overrides=[], config={}, artifacts={},
        process={"host": "elsewhere", "pid": os.getpid(), "began": 1},
    )  # fmt: skip
    record = history.find(tmp_path, run)
    with pytest.raises(detached.StoreError, match=f"runs on elsewhere; type there: grpoflow stop {run}"):
        detached.stop(tmp_path, record, 0)
    record.process = {}
    with pytest.raises(detached.StoreError, match="does not know its process"):
        detached.stop(tmp_path, record, 0)
