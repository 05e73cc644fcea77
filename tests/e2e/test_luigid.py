import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Finished, command
from tests.processes import wait_until


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def luigid(tmp_path):
    """A real luigid on loopback; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    (tmp_path / "luigi.cfg").write_text("[resources]\ncards = 2\n")
    program = str(Path(sys.executable).parent / "luigid")
    server = subprocess.Popen(
        [program, "--address", "127.0.0.1", "--port", str(port), "--state-path", str(tmp_path / "state")],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: is_listening(port), 30, server)
    yield port
    server.terminate()
    server.wait()


def test_a_central_scheduler_works(without, luigid):
    store = without("report", "export")
    scheduler = ["--scheduler-host", "127.0.0.1", "--scheduler-port", str(luigid)]
    done = subprocess.run([*command(store), *scheduler], capture_output=True, text=True, timeout=300)
    finished = Finished(done.returncode, done.stdout, done.stderr)
    assert finished.exit_code == 0, done.stderr
    assert sorted(finished.started) == ["export", "report"]
    assert finished.result["run"]
