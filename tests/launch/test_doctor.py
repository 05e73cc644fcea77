"""Each check on the real thing where this machine has it: interpreters, ports, disks, an HTTP server."""

import http.server
import socket
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import pytest

from launch import doctor

GIB = 2**30


def test_versions_of_another_interpreter() -> None:
    found = doctor.versions(sys.executable, ["numpy", "no-such-distribution"])
    assert found is not None
    assert (found["numpy"], found["no-such-distribution"]) == (version("numpy"), None)
    assert doctor.python_version(found["python"] or "").status == "ok"
    assert doctor.versions("/no/such/python", []) is None
    assert doctor.versions("/bin/false", []) is None


@pytest.mark.parametrize(
    ("name", "have", "status"),
    [
        ("mindspore", "2.7.0", "ok"),
        ("mindspore", "2.7.1", "problem"),
        ("safetensors", "0.7.0", "ok"),
        ("safetensors", "0.8.0", "problem"),
        ("urllib3", "1.26.20", "ok"),
        ("urllib3", "2.0.0", "problem"),
        ("vllm", "0.8.4.dev0+g296c657.d20250704.empty", "ok"),
        ("vllm", "0.9.1", "problem"),
        ("numpy", None, "problem"),
    ],
)
def test_windows(name: str, have: str | None, status: str) -> None:
    windows = [one for one in doctor.MINDRLHF + doctor.VLLM if one[0] == name]
    [check] = doctor.packages(windows, {name: have}.get, "python")
    assert check.status == status
    assert (name in check.remedy) == (status == "problem")


def test_pythons() -> None:
    found = [doctor.python_version(one).status for one in ("3.9.18", "3.10.0", "3.11.9", "3.12.1")]
    assert found == ["problem", "ok", "ok", "problem"]


def test_devices_are_counted_by_npu_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.devices(8).found == "npu-smi not found"
    tool = tmp_path / "npu-smi"
    for text, status in (("Total Count : 8", "ok"), ("Total Count : 4", "problem"), ("what?", "unknown")):
        tool.write_text(f"#!/bin/sh\necho '{text}'\n")
        tool.chmod(0o755)
        assert doctor.devices(8).status == status


def test_the_engines_python_is_never_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.prefix) / "bin"))
    assert doctor.interpreter(None) is None
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}:{tmp_path}")
    assert doctor.interpreter(None) == str(tmp_path / "python")
    assert doctor.interpreter("/opt/python") == "/opt/python"


def test_memory_and_disk(tmp_path: Path) -> None:
    assert doctor.memory(GIB // 1024).status == "ok"
    assert "1048576.0 GiB are needed" in doctor.memory(2**50).remedy
    absent = tmp_path / "not" / "there"
    assert doctor.disk(absent, 1).status == "ok" and not absent.exists()
    assert doctor.disk(absent, 2**60).status == "problem"


def test_a_port_in_use_is_a_problem() -> None:
    assert doctor.port(None).status == "ok"
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = doctor.port(server.getsockname()[1])
    assert check.status == "problem" and "launcher.master_port" in check.remedy


def test_a_hub_that_answers_anything_is_reachable() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # answers 501
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        check = doctor.reachable(url, "the hub")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (check.status, check.found) == ("ok", "the hub answers 501")
    assert doctor.reachable(url, "the hub", timeout_s=2).status == "problem"
