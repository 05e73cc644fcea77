"""The second node of a Ray cluster, around a `ray start` that only waits; test_ray.py runs real Ray."""

import json
import os
import socket
import subprocess
import sys

import pytest

from launch.nodes import ray_node
from tests.launch.launchers import executable
from tests.processes import wait_until


def node(directory, port, ray, timeout_s=10.0):
    """Start the second of two nodes; the first is at `port`, and `ray` is the text of the program `ray`."""
    if ray is not None:
        executable(directory / "ray_script/ray", f"#!/usr/bin/env bash\n{ray}\n")
    settings = {
        "nodes": [{"name": "first", "cards": 1}, {"name": "second", "cards": 1}], "resource": "NPU",
        "address": None, "options": [], "wait_timeout_s": timeout_s, "directory": str(directory / "ray"),
    }  # fmt: skip
    (directory / "ray.json").write_text(json.dumps(settings))
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOG_DIR": str(directory)}
    environment["PATH"] = f"{directory}/ray_script:/usr/bin:/bin"
    command = [sys.executable, ray_node.__file__, str(directory / "ray.json"), "1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


@pytest.fixture
def first():
    """The socket of the first node's Ray."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_it_exits_with_0_when_the_first_node_has_ended(first, tmp_path):
    sockets = tmp_path / "ray/ray/session_2026/sockets"
    waiting = f"env > {tmp_path}/seen; mkdir -p {sockets}; echo Ray runtime started; exec sleep 60"
    started = node(tmp_path, first.getsockname()[1], waiting)
    wait_until(lambda: (tmp_path / "seen").exists() and (tmp_path / "ray").is_dir(), process=started)
    assert (tmp_path / "ray").stat().st_mode & 0o777 == 0o700
    first.close()
    message, _ = started.communicate(timeout=100)
    assert (started.returncode, message) == (0, "")
    assert not (tmp_path / "ray").exists()
    assert "MASTER_PORT" not in (tmp_path / "seen").read_text()  # a trainer's own variable


@pytest.mark.parametrize(
    ("ray", "cause"),
    [
        ("echo no port; exit 3", "Ray on node second ended with exit code 3, see "),
        ("silent", "does not answer after 1 s"),
        ("exec sleep 60", "Ray on node second does not start in time, see "),
        ("foreign", "belongs to another user"),
        (None, f"ray is not installed next to {sys.executable}; "),
    ],
)
def test_a_node_that_cannot_join_fails_with_the_cause(first, tmp_path, ray, cause):
    port = first.getsockname()[1]
    if ray == "silent":
        first.close()
    if ray == "foreign":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "ray").symlink_to(tmp_path / "elsewhere")
    started = node(tmp_path, port, ray, timeout_s=1.0 if ray in ("silent", "exec sleep 60") else 10.0)
    message, _ = started.communicate(timeout=100)
    assert started.returncode == 1 and message.startswith("error: ") and cause in message


@pytest.mark.parametrize(
    "resource, option", [("NPU", '--resources={"NPU": 8}'), ("GPU", "--num-gpus=8")], ids=["NPU", "GPU"]
)
def test_ray_counts_the_cards_under_the_name_of_their_device(monkeypatch, tmp_path, resource, option):
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1"), ("LOG_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    settings = {
        "nodes": [{"name": "only", "cards": 8}], "resource": resource, "address": None, "options": [],
        "dashboard_port": 1, "directory": str(tmp_path / "ray"),
    }  # fmt: skip
    assert option in ray_node.RayNode(settings, 0).ray_command()
