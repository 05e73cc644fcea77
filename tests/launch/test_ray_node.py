"""A node beside the first, around a `ray start` that only waits; what needs real Ray is in test_ray.py."""

import json
import os
import socket
import subprocess
import sys

import pytest

from launch.nodes import ray_node


def node(directory, port, ray, timeout_s=10.0):
    """Start the second of two nodes; the first one is at `port`, and `ray` is the text of its `ray`."""
    if ray is not None:
        (directory / "ray_script").mkdir()
        script = directory / "ray_script/ray"
        script.write_text(f"#!/usr/bin/env bash\n{ray}\n")
        script.chmod(0o755)
    settings = {
        "nodes": [{"name": "first", "npus": 1}, {"name": "second", "npus": 1}],
        "address": None, "options": [], "wait_timeout_s": timeout_s, "directory": str(directory / "ray"),
    }  # fmt: skip
    (directory / "ray.json").write_text(json.dumps(settings))
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOG_DIR": str(directory)}
    environment["PATH"] = f"{directory}/ray_script:/usr/bin:/bin"
    return subprocess.Popen(
        [sys.executable, ray_node.__file__, str(directory / "ray.json"), "1"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def first():
    """The first node's Ray, as far as others can tell."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


def test_it_exits_with_0_when_the_first_node_has_ended(first, tmp_path):
    sockets = tmp_path / "ray/ray/session_2026/sockets"
    waiting = f"env > {tmp_path}/seen; mkdir -p {sockets}; echo Ray runtime started; exec sleep 60"
    started = node(tmp_path, first.getsockname()[1], waiting)
    while not (tmp_path / "seen").exists() or not (tmp_path / "ray").is_dir():
        assert started.poll() is None
    assert (tmp_path / "ray").stat().st_mode & 0o777 == 0o700
    first.close()
    message, _ = started.communicate(timeout=20)
    assert (started.returncode, message) == (0, "")
    assert not (tmp_path / "ray").exists()
    assert "MASTER_PORT" not in (tmp_path / "seen").read_text()  # a trainer's own variable


def test_it_fails_when_the_ray_process_of_its_node_ends(first, tmp_path):
    started = node(tmp_path, first.getsockname()[1], "echo no port; exit 3")
    message, _ = started.communicate(timeout=20)
    log = tmp_path / "ray_second" / "ray_start.txt"
    output = f"error: Ray on node second ended with exit code 3, see {log}\n"
    assert (started.returncode, message, log.read_text()) == (1, output, "no port\n")


def test_an_address_without_an_answer_is_named(first, tmp_path):
    port = first.getsockname()[1]
    first.close()
    started = node(tmp_path, port, "false", timeout_s=1.0)
    message, _ = started.communicate(timeout=20)
    assert (started.returncode, message) == (1, f"error: Ray at 127.0.0.1:{port} does not answer after 1 s\n")


def test_a_directory_of_another_user_is_refused(first, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ray").symlink_to(tmp_path / "elsewhere")
    started = node(tmp_path, first.getsockname()[1], "true")
    message, _ = started.communicate(timeout=20)
    assert started.returncode == 1 and message == f"error: {tmp_path}/ray belongs to another user\n"


def test_missing_ray_is_an_error(first, tmp_path):
    started = node(tmp_path, first.getsockname()[1], None)
    message, _ = started.communicate(timeout=20)
    assert message.startswith(f"error: ray is not installed next to {sys.executable}; ")
