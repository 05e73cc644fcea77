"""An engine on several machines: real ssh and msrun between network namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from launch import engine
from launch.config import LauncherConfig
from launch.errors import ProcessFailed
from launch.process import JOB_VARIABLE
from launch.scripts import EngineStart
from tests.launch.launchers import local_launcher
from tests.launch.namespaces import Machines, machines

pytestmark = [pytest.mark.nodes, pytest.mark.slow]
WORKER = """
import os, sys, time
from mindspore.communication import get_group_size, get_rank, init
init()
if os.environ["MS_ROLE"] == "MS_WORKER":
    print(f"met as rank {get_rank()} of {get_group_size()}", flush=True)
    if len(sys.argv) > 1 and sys.argv[1] == "stay":
        time.sleep(300)
    if len(sys.argv) > 1 and sys.argv[1] == str(get_rank()):
        raise RuntimeError("out of memory")
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(2, tmp_path_factory.mktemp("machines")) as made:
        yield made


def launcher(made: Machines) -> LauncherConfig:
    return local_launcher(
        name="ssh", hosts=tuple(made.addresses), ssh=tuple(made.ssh), cards_per_node=1, grace_s=2
    )


def start(directory: Path, workers: int, *arguments: str) -> EngineStart:
    program = directory / "worker.py"
    program.write_text(WORKER)
    return EngineStart(
        program=(str(program), *arguments), workers=workers, python=sys.executable, env={"GLOG_v": "3"},
        python_path=(), env_scripts=(), container=(), directory=str(directory / "run"),
    )  # fmt: skip


def run(directory: Path, begun: EngineStart, settings: LauncherConfig) -> Path:
    logs = directory / "logs"
    logs.mkdir()
    engine.run(
        begun, job=str(directory), directory=directory / "launch", logs=logs, launcher=settings,
        on_poll=lambda: None, silent_s=lambda: 0.0, silence_timeout_s=None,
    )  # fmt: skip
    return logs


def living(directory: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(JOB_VARIABLE, "").startswith(str(directory)):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_two_machines_meet_at_an_address_and_a_port_that_nobody_typed(two: Machines, tmp_path: Path) -> None:
    logs = run(tmp_path, start(tmp_path, 2), launcher(two))
    for rank in (0, 1):
        assert f"met as rank {rank} of 2" in (logs / f"worker_{rank}.log").read_text()
    assert "they meet at 10.77.0.1:" in (logs / "start.log").read_text()
    assert living(tmp_path) == []


def test_a_worker_that_fails_ends_the_run_on_every_machine(two: Machines, tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed) as failure:
        run(tmp_path, start(tmp_path, 2, "1"), launcher(two))
    assert failure.value.log.name == "worker_1.log"
    assert any("out of memory" in line for line in failure.value.tail)
    assert living(tmp_path) == []


@pytest.mark.parametrize("fails", [False, True])
def test_logs_on_a_machines_own_disk_come_home(two: Machines, tmp_path: Path, fails: bool) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    two.own_disk(1, logs)
    begun, settings = start(tmp_path, 2, *(["1"] if fails else [])), launcher(two)
    try:
        engine.run(
            begun, job=str(tmp_path), directory=tmp_path / "launch", logs=logs, launcher=settings,
            on_poll=lambda: None, silent_s=lambda: 0.0, silence_timeout_s=None,
        )  # fmt: skip
        assert not fails
    except ProcessFailed as failure:
        assert fails and failure.log == logs / "worker_1.log"
    assert "met as rank 1 of 2" in (logs / "worker_1.log").read_text()
    assert "met as rank 0 of 2" in (logs / "worker_0.log").read_text()
    assert not list(logs.glob(".here-*"))


def test_a_killed_launcher_leaves_nothing_running(two: Machines, tmp_path: Path) -> None:
    begun = start(tmp_path, 2, "stay")
    settings = launcher(two)
    (tmp_path / "logs").mkdir()
    engine.write(begun, settings, tmp_path / "launch", tmp_path / "logs")
    command = engine.command(begun, str(tmp_path), tmp_path / "launch", tmp_path / "logs", settings)
    child = subprocess.Popen(command, env={**os.environ, JOB_VARIABLE: str(tmp_path)})
    wait_until(lambda: met(tmp_path) == 2)
    child.kill()
    child.wait()
    assert living(tmp_path)
    for process in psutil.process_iter():  # what launch.process.end_job does: ssh carries the job's name
        if process.pid in living(tmp_path) and process.name() == "ssh":
            process.kill()
    wait_until(lambda: living(tmp_path) == [])


def test_a_machine_that_is_lost_is_named(two: Machines, tmp_path: Path) -> None:
    """The last test: the second machine's cable stays pulled."""
    begun = start(tmp_path, 2, "stay")

    def cut() -> None:
        if met(tmp_path) == 2 and not (tmp_path / "cut").exists():
            (tmp_path / "cut").touch()
            two.cut(1)

    (tmp_path / "logs").mkdir()
    with pytest.raises(ProcessFailed) as failure:
        engine.run(
            begun, job=str(tmp_path), directory=tmp_path / "launch", logs=tmp_path / "logs",
            launcher=launcher(two), on_poll=cut, silent_s=lambda: 0.0, silence_timeout_s=None,
        )  # fmt: skip
    assert any("node 10.77.0.2 ended with exit code 255 (ssh lost it)" in line for line in failure.value.tail)
    wait_until(lambda: living(tmp_path) == [])  # there, too: no sign of life came any more


def met(directory: Path) -> int:
    return sum("met as rank" in log.read_text() for log in (directory / "logs").glob("worker_*.log"))


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.2)
