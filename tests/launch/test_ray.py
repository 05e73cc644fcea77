"""Real Ray, started, watched and ended by us: nodes at addresses of the loopback, NPUs only counted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launch.errors import ProcessFailed
from launch.nodes import run as nodes_run
from launch.nodes.ray_node import REGISTERED
from launch.nodes.start import Ray
from launch.process.tree import JOB_VARIABLE, end_job
from tests.launch.cluster import cluster
from tests.launch.launchers import local_launcher, make_start, run_job, several
from tests.processes import in_sessions, living, wait_until

pytest.importorskip("ray", reason="the engine's interpreter is this one here: pip install 'grpoflow[test]'")

pytestmark = pytest.mark.long
OPTIONS = ("--num-cpus=1", "--object-store-memory=80000000")
PROGRAM = """
import sys, time
from pathlib import Path
import ray

@ray.remote(resources={"NPU": 1}, num_cpus=0)
class Card:
    def where(self):
        return ray.util.get_node_ip_address()

ray.init()
counter, cards, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
actors = [Card.remote() for _ in range(cards)]
print("cards at", sorted(ray.get([actor.where.remote() for actor in actors])), flush=True)
done = int(counter.read_text()) if counter.exists() else 0
print("begins at", done, flush=True)
while done < steps:
    ray.get([actor.where.remote() for actor in actors])
    done += 1
    counter.write_text(str(done))
    time.sleep(0.1)
"""


def start(directory, npus, steps=3, address=None):
    ray = Ray(address, None, OPTIONS, 120.0)
    counter = str(directory / "counter")
    return make_start(directory, PROGRAM, counter, str(npus), str(steps), workers=npus, ray=ray)


def run(directory, begun, settings):
    """Run to the end; what the program said. Asserts that nothing of the run is left, however it ended."""
    log, sessions = directory / "logs" / "worker_0.log", set()
    log.unlink(missing_ok=True)

    def look():
        if not sessions:  # Ray's workers overwrite their environment, but stay in the session
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                sessions.update(os.getsid(pid) for pid in living(directory))

    try:
        run_job(directory, begun, settings, look)
    finally:
        assert sessions
        wait_until(lambda: not in_sessions(sessions))
    return log.read_text()


def listening(sessions):
    """Addresses at which anybody of these sessions waits for connections."""
    result = set()
    for each in in_sessions(sessions):
        with contextlib.suppress(psutil.Error):
            result |= {at.laddr.ip for at in each.net_connections("inet") if at.status == psutil.CONN_LISTEN}
    assert result
    return result


def counted(directory):
    with contextlib.suppress(OSError, ValueError):
        return int((directory / "counter").read_text())
    return 0


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Somebody else's cluster, which is there during all tests, and lives after each of them."""
    directory = tmp_path_factory.mktemp("f")
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--port=26379"]
    command += ["--node-ip-address=127.0.0.8", f"--temp-dir=/tmp/ray-foreign-{os.getpid()}", *OPTIONS]
    command += ["--disable-usage-stats", "--include-dashboard=false", '--resources={"NPU": 1}']
    with (directory / "log").open("wb") as log:
        reference = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: REGISTERED in (directory / "log").read_bytes(), 300, reference)
        yield "127.0.0.8:26379"
        assert reference.poll() is None
    finally:
        reference.terminate()
        reference.wait(60)
        subprocess.run(["rm", "-rf", f"/tmp/ray-foreign-{os.getpid()}"], check=True)


def test_an_existing_cluster_is_used_and_left_running(foreign, tmp_path):
    message = run(tmp_path, start(tmp_path, 1, address=foreign), local_launcher())
    assert "cards at ['127.0.0.8']" in message
    again = run(tmp_path, start(tmp_path, 1, 4, address=foreign), local_launcher())
    assert "begins at 3" in again


def test_a_missing_node_is_named(tmp_path):
    settings = replace(several(tmp_path, 2), hosts=("127.0.0.2", "127.0.0.9"))
    begun = start(tmp_path, 2)
    with pytest.raises(ProcessFailed) as failure:
        run(tmp_path, replace(begun, ray=replace(begun.ray, wait_timeout_s=60.0)), settings)
    output = "error: after 60 s 1 of 2 NPUs are registered; missing: 127.0.0.9"
    assert output in failure.value.tail, failure.value.tail
    assert counted(tmp_path) == 0


def test_survivors_of_a_killed_launcher_are_ended_by_the_next(tmp_path):
    begun, settings = start(tmp_path, 1, 10_000), local_launcher()
    (tmp_path / "logs").mkdir()
    nodes_run.write(begun, settings, tmp_path / "launch", tmp_path / "logs")
    first = subprocess.Popen(
        ["bash", str(tmp_path / "launch/node_0.sh")], start_new_session=True,
        env={**os.environ, JOB_VARIABLE: str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    session = {first.pid}
    try:
        wait_until(lambda: counted(tmp_path) >= 3)
        assert all(address.startswith(("127.", "::ffff:127.", "::1")) for address in listening(session)), (
            listening(session)
        )
        first.send_signal(signal.SIGKILL)
        first.wait()
        time.sleep(3)
        assert "raylet" in {each.name() for each in in_sessions(session)}
        assert end_job(str(tmp_path), grace_s=0.0)
    finally:
        end_job(str(tmp_path), grace_s=0.0)
    wait_until(lambda: not in_sessions(session))
    done = counted(tmp_path)
    assert f"begins at {done}\n" in run(tmp_path, start(tmp_path, 1, done + 3), settings)


@pytest.mark.slurm
def test_a_slurm_job_starts_ray(tmp_path, tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm")):
        message = run(tmp_path, start(tmp_path, 2), local_launcher(name="slurm", grace_s=8))
    assert "cards at ['127.0.0.1', '127.0.0.1']" in message
