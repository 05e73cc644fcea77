"""An engine on several machines: real ssh and msrun between network namespaces."""

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from launch.errors import ProcessFailed
from launch.nodes import fan_out
from launch.nodes import run as nodes_run
from launch.nodes.start import Start
from launch.process.tree import JOB_VARIABLE
from tests.launch.launchers import local_launcher
from tests.launch.namespaces import machines
from tests.processes import living, wait_until

pytestmark = [pytest.mark.nodes, pytest.mark.slow]
WORKER = """
import os, sys, time
if "meet" in sys.argv:
    from mindspore.communication import get_group_size, get_rank, init
    init()
    print(f"met as rank {get_rank()} of {get_group_size()}", flush=True)
if os.environ["MS_ROLE"] == "MS_WORKER":
    print("here", flush=True)
    if "stay" in sys.argv:
        time.sleep(300)
    if os.environ["RANK_ID"] in sys.argv:
        raise RuntimeError("out of memory")
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with machines(2, tmp_path_factory.mktemp("machines")) as made:
        yield made


def launcher(made):
    return local_launcher(
        name="ssh", hosts=tuple(made.addresses), ssh=tuple(made.ssh), cards_per_node=1, grace_s=2
    )


def start(directory, workers, *arguments):
    program = directory / "worker.py"
    program.write_text(WORKER)
    return Start(
        program=(str(program), *arguments), workers=workers, python=sys.executable, env={"GLOG_v": "3"},
        python_path=(), env_scripts=(), container=(), directory=str(directory / "run"),
    )  # fmt: skip


def run(directory, begun, settings):
    logs = directory / "logs"
    logs.mkdir(exist_ok=True)
    nodes_run.run(
        begun, job=str(directory), directory=directory / "launch", logs=logs, launcher=settings,
        on_poll=lambda: None, silent_s=lambda: 0.0, silence_timeout_s=None,
    )  # fmt: skip
    return logs


def test_two_machines_connect_at_an_address_and_port_chosen_by_the_launcher(two, tmp_path):
    logs = run(tmp_path, start(tmp_path, 2, "meet"), launcher(two))
    for rank in (0, 1):
        assert f"met as rank {rank} of 2" in (logs / f"worker_{rank}.log").read_text()
    assert "they meet at 10.77.0.1:" in (logs / "start.log").read_text()
    assert not living(tmp_path) and not list(logs.glob(".here-*"))


def test_a_machine_without_the_shared_directory_is_refused_before_the_start(two, tmp_path):
    (tmp_path / "launch").mkdir()
    two.mount_separate_disk(1, tmp_path / "launch")
    (tmp_path / "logs").mkdir()
    begun = start(tmp_path, 2)
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(ProcessFailed) as failure:
        run(tmp_path, replace(begun, python_path=(str(home),)), launcher(two))
    directory = tmp_path / "launch"
    (output,) = [line for line in failure.value.tail if line.startswith("error: ")]
    assert output.startswith(f"error: node 10.77.0.2: {directory}: must be one directory for all nodes")
    assert not list((tmp_path / "logs").glob("worker_*.log")) and not living(tmp_path)
    assert not list(directory.glob(".shared-*"))


def test_every_machine_is_checked_for_missing_files(two, tmp_path):
    home, store = tmp_path / "home", tmp_path / "store"
    for directory in (home, store):
        directory.mkdir()
    (home / "checkout").touch()
    paths = [sys.executable, str(home / "checkout")]
    assert nodes_run.missing(two.ssh, two.addresses, paths, store / "to" / "be" / "made") == []
    two.mount_separate_disk(1, home)
    output = nodes_run.missing(two.ssh, two.addresses, paths, store)
    assert output == [("10.77.0.2", f"{home}/checkout: must exist on every node, at the same path")]
    hosts, ssh = (two.addresses[0], "10.77.0.99"), (*two.ssh, "-o", "ConnectTimeout=2")
    ((host, what),) = nodes_run.missing(ssh, hosts, [], store)
    assert host == "10.77.0.99" and what.endswith("10.77.0.99 true` must work")
    assert list(store.iterdir()) == []


def test_a_failed_worker_ends_the_run_on_every_machine(two, tmp_path):
    logs = tmp_path / "logs"
    with pytest.raises(ProcessFailed) as failure:
        run(tmp_path, start(tmp_path, 2, "1"), launcher(two))
    assert failure.value.log == logs / "worker_1.log"
    assert any("out of memory" in line for line in failure.value.tail)
    assert not living(tmp_path) and not list(logs.glob(".here-*"))


def test_a_killed_launcher_leaves_nothing_running(two, tmp_path):
    begun = start(tmp_path, 2, "stay")
    settings = launcher(two)
    (tmp_path / "logs").mkdir()
    nodes_run.write(begun, settings, tmp_path / "launch", tmp_path / "logs")
    command = nodes_run.command(begun, str(tmp_path), tmp_path / "launch", tmp_path / "logs", settings)
    child = subprocess.Popen(command, env={**os.environ, JOB_VARIABLE: str(tmp_path)})
    wait_until(lambda: arrived(tmp_path) == 2)
    child.kill()
    child.wait()
    assert living(tmp_path)
    for process in psutil.process_iter():  # what launch.process.tree.end_job does: ssh carries the job's name
        if process.pid in living(tmp_path) and process.name() == "ssh":
            process.kill()
    wait_until(lambda: not living(tmp_path))


def test_a_lost_machine_is_named(two, tmp_path, monkeypatch):
    """The last test: the second machine's cable stays pulled."""
    monkeypatch.setattr(fan_out, "LOST_S", 12)  # heartbeats come every five seconds
    begun = start(tmp_path, 2, "stay")

    def cut():
        if arrived(tmp_path) == 2 and not (tmp_path / "cut").exists():
            (tmp_path / "cut").touch()
            two.cut(1)

    (tmp_path / "logs").mkdir()
    with pytest.raises(ProcessFailed) as failure:
        nodes_run.run(
            begun, job=str(tmp_path), directory=tmp_path / "launch", logs=tmp_path / "logs",
            launcher=launcher(two), on_poll=cut, silent_s=lambda: 0.0, silence_timeout_s=None,
        )  # fmt: skip
    assert any("node 10.77.0.2 ended with exit code 255 (ssh lost it)" in line for line in failure.value.tail)
    wait_until(lambda: not living(tmp_path))  # there, too: no sign of life came any more


def arrived(directory):
    return sum("here" in log.read_text() for log in (directory / "logs").glob("worker_*.log"))
