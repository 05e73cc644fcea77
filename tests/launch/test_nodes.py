"""An engine on several machines: real ssh and msrun between network namespaces."""

import os
import subprocess
import sys

import psutil
import pytest

from launch.errors import ProcessFailed
from launch.nodes import fan_out
from launch.nodes import run as nodes_run
from launch.process.tree import JOB_VARIABLE
from tests.launch.launchers import make_start, run_job, ssh_launcher
from tests.launch.namespaces import machines
from tests.processes import living, wait_until

pytestmark = [pytest.mark.nodes, pytest.mark.slow]
WORKER = """
import os, socket, sys, time
if "meet" in sys.argv:
    address = os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])
    if os.environ["MS_ROLE"] == "MS_SCHED":
        server = socket.create_server(address)
        for _ in range(2):
            server.accept()
        sys.exit()
    for attempt in range(600):
        try:
            socket.create_connection(address)
            print("met as rank", os.environ.get("RANK_ID"), flush=True)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
if os.environ["MS_ROLE"] == "MS_WORKER":
    print("here", flush=True)
    if os.environ["RANK_ID"] in sys.argv:
        raise RuntimeError("out of memory")
    if "stay" in sys.argv:
        time.sleep(300)
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with machines(2, tmp_path_factory.mktemp("machines")) as made:
        yield made


def launcher(made, grace_s=2):
    return ssh_launcher(made.addresses, made.ssh, grace_s)


def start(directory, *arguments, **changes):
    return make_start(directory, WORKER, *arguments, env={"GLOG_v": "3"}, **changes)


def test_two_machines_connect_at_an_address_and_port_chosen_by_the_launcher(two, tmp_path):
    logs = run_job(tmp_path, start(tmp_path, "meet"), launcher(two))
    for rank in (0, 1):
        assert f"met as rank {rank}" in (logs / f"worker_{rank}.log").read_text()
    assert "they meet at 10.77.0.1:" in (logs / "start.log").read_text()
    assert not living(tmp_path) and not list(logs.glob(".here-*"))


def test_a_machine_without_the_shared_directory_is_refused_before_the_start(two, tmp_path):
    (tmp_path / "launch").mkdir()
    two.mount_separate_disk(1, tmp_path / "launch")
    with pytest.raises(ProcessFailed) as failure:
        run_job(tmp_path, start(tmp_path), launcher(two))
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
    two.mount_separate_disk(1, store)
    ((host, what),) = nodes_run.missing(two.ssh, two.addresses, [], store)
    assert host == "10.77.0.2" and what.startswith(f"{store}: must be one directory for all nodes")
    hosts, ssh = (two.addresses[0], "10.77.0.99"), (*two.ssh, "-o", "ConnectTimeout=2")
    ((host, what),) = nodes_run.missing(ssh, hosts, [], store)
    assert host == "10.77.0.99" and what.endswith("10.77.0.99 true` must work")
    assert list(store.iterdir()) == []


def test_a_failed_worker_ends_the_run_on_every_machine(two, tmp_path):
    """The other worker would stay for minutes, and nobody waits for it, although it may end slowly."""
    logs = tmp_path / "logs"
    with pytest.raises(ProcessFailed) as failure:
        run_job(tmp_path, start(tmp_path, "1", "stay"), launcher(two, grace_s=600))
    assert failure.value.log == logs / "worker_1.log"
    assert any("out of memory" in line for line in failure.value.tail)
    assert not living(tmp_path) and not list(logs.glob(".here-*"))


def test_a_killed_launcher_leaves_nothing_running(two, tmp_path):
    begun, settings = start(tmp_path, "stay"), launcher(two)
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

    def cut():
        if arrived(tmp_path) == 2 and not (tmp_path / "cut").exists():
            (tmp_path / "cut").touch()
            two.cut(1)

    with pytest.raises(ProcessFailed) as failure:
        run_job(tmp_path, start(tmp_path, "stay"), launcher(two), cut)
    assert any("node 10.77.0.2 ended with exit code 255 (ssh lost it)" in line for line in failure.value.tail)
    wait_until(lambda: not living(tmp_path))  # there, too: no sign of life came any more


def arrived(directory):
    return sum("here" in log.read_text() for log in (directory / "logs").glob("worker_*.log"))
