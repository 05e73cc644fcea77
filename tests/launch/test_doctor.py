"""Each check on the real thing where this machine has it: interpreters, ports, disks, an HTTP server."""

import contextlib
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from launch.machine import checks
from stages.engines.mindrlhf import engine as mindrlhf
from stages.engines.mindrlhf_one_stage import engine as one_stage
from stages.engines.mindspeed_rl import engine as mindspeed_rl

GIB = 2**30


def test_versions_of_another_interpreter():
    result = checks.versions(sys.executable, ["numpy", "no-such-distribution"])
    assert result is not None
    assert (result["numpy"], result["no-such-distribution"]) == (version("numpy"), None)
    assert checks.python_version(result["python"] or "").status == "ok"
    assert checks.versions("/no/such/python", []) is None
    assert checks.versions("/bin/false", []) is None


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
        ("numpy", "2.0.0", "problem"),
        ("vllm-mindspore", "0.3.0", "ok"),
        ("vllm-mindspore", "0.5.1", "problem"),
        ("mindstudio-probe", "1.2.2", "ok"),
        ("mindstudio-probe", None, "problem"),
    ],
)
def test_windows(name, have, status):
    known = [item for item in mindrlhf.KNOWN.packages + mindrlhf.VLLM if item[0] == name]
    [check] = checks.packages(known, {name: have}.get, "python")
    assert check.status == status
    assert (name in check.remedy) == (status == "problem")


def test_pythons():
    result = [checks.python_version(item).status for item in ("3.9.18", "3.10.0", "3.11.9", "3.12.1")]
    assert result == ["problem", "ok", "ok", "problem"]


def test_the_engines_python_is_not_grpoflows(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.prefix) / "bin"))
    assert checks.interpreter(None) is None
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}:{tmp_path}")
    assert checks.interpreter(None) == str(tmp_path / "python")
    assert checks.interpreter("/opt/python") == "/opt/python"


def test_memory_and_disk(tmp_path):
    assert checks.memory(GIB // 1024).status == "ok"
    assert "1048576.0 GiB are needed" in checks.memory(2**50).remedy
    absent = tmp_path / "not" / "there"
    assert checks.disk(absent, 1).status == "ok" and not absent.exists()
    assert checks.disk(absent, 2**60).status == "problem"


def test_a_port_in_use_is_a_problem():
    assert checks.port(None).status == "ok"
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = checks.port(server.getsockname()[1])
    assert check.status == "problem" and "launcher.master_port" in check.remedy


def test_a_hub_with_any_answer_is_reachable():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # answers 501
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        check = checks.reachable(url, "the hub")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (check.status, check.found) == ("ok", "the hub answers 501")
    assert checks.reachable(url, "the hub", timeout_s=2).status == "problem"


INFO = "package_name=Ascend-cann-toolkit\nversion={}\ninnerversion=V100R001C22\narch=aarch64\n"


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("8.2.RC1", "ok"),
        ("8.1.RC1", "ok"),
        ("8.0.0", "problem"),
        ("8.0.RC3", "problem"),
        ("7.0.1", "problem"),
        ("8.3.RC1", "unknown"),
        ("8.5.0", "unknown"),
        ("none", "unknown"),
    ],
)
def test_cann_is_read_from_its_installers_file(tmp_path, version, status):
    window = mindrlhf.KNOWN.cann
    assert checks.cann(window, tmp_path).status == "problem"
    file = tmp_path / "ascend-toolkit" / "latest" / "aarch64-linux" / "ascend_toolkit_install.info"
    file.parent.mkdir(parents=True)
    file.write_text(INFO.format(version))
    check = checks.cann(window, tmp_path)
    assert check.status == status and (">=8.1,<8.3" in check.remedy) == (status != "ok")
    assert checks.cann(window, Path("/nowhere"), str(file.parents[1])).status == status  # ASCEND_HOME_PATH
    assert checks.cann(window, tmp_path, "/nowhere").status == "problem"


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("24.1.rc3", "ok"),
        ("25.0.rc1.1", "ok"),
        ("25.2.0", "ok"),
        ("23.0.6", "problem"),
        ("24.0.1", "problem"),
        ("unnamed", "unknown"),
    ],
)
def test_the_driver_is_read_from_its_version_file(tmp_path, version, status):
    window = mindrlhf.KNOWN.driver
    assert checks.driver(window, tmp_path).status == "problem"
    (tmp_path / "driver").mkdir()
    text = f"Version={version}\nascendhal_version=7.35.23\naicpu_version=1.0\n"
    (tmp_path / "driver" / "version.info").write_text(text)
    check = checks.driver(window, tmp_path)
    assert check.status == status and (version == "unnamed" or version in check.found)


def test_versions_of_cann_differ_between_engines(tmp_path):
    (tmp_path / "cann" / "x86_64-linux").mkdir(parents=True)
    file = tmp_path / "cann" / "x86_64-linux" / "ascend_toolkit_install.info"
    for have, statuses in (("8.0.0", "ok problem problem"), ("8.5.0", "unknown ok unknown")):
        file.write_text(INFO.format(have))
        every = (one_stage.KNOWN, *mindspeed_rl.KNOWN.values())
        assert [checks.cann(known.cann, tmp_path).status for known in every] == statuses.split()


def test_versions_differ_between_contracts_of_mindspeed_rl():
    have = {"transformers": "4.48.2", "ray": "2.42.1", "mindspore": "2.7.0", "safetensors": "0.8.0"}

    def wrong(contract):
        known = [item for item in mindspeed_rl.KNOWN[contract].packages if item[0] in have]
        return {check.name for check in checks.packages(known, have.get, "python") if check.status != "ok"}

    assert wrong("667a547") == {"safetensors"}
    assert wrong("05a90d7") == {"safetensors", "transformers"}
    have |= {"ray": "2.10.0", "mindspore": "2.6.0", "safetensors": "0.7.0", "transformers": "4.57.1"}
    assert wrong("667a547") == {"ray", "mindspore", "transformers"}
    assert wrong("05a90d7") == {"ray", "mindspore"}


def test_a_reachable_and_an_unknown_host(sshd):
    good, refused = checks.hosts(["127.0.0.1", "no-such-host.invalid"], sshd)
    assert good == checks.Check("host 127.0.0.1", "ok", "ssh gets in")
    assert refused.status == "problem" and "no-such-host.invalid" in refused.name
    assert "is its name right" in refused.remedy


def test_a_host_that_refuses_the_key(sshd):
    """sshd answers, but this key it does not know."""
    [check] = checks.hosts(["127.0.0.1"], [*sshd[:-1], "IdentityFile=none"])
    assert check.status == "problem"
    assert "Permission denied" in check.found and "ssh-copy-id" in check.remedy


def test_a_host_without_sshd():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    [check] = checks.hosts(["127.0.0.1"], ["ssh", "-o", "BatchMode=yes", "-p", str(port)])
    assert check.status == "problem" and f"port {port}: Connection refused" in check.found
    assert "is sshd running" in check.remedy


@pytest.fixture
def sshd(tmp_path):
    """A real sshd on loopback with keys of its own, and the command that gets in."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if program is None or os.getuid() != 0:
        pytest.skip("needs sshd and root")
    for key in ("host", "id"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True, timeout=30
        )
    shutil.copy(tmp_path / "id.pub", tmp_path / "authorized")
    Path("/run/sshd").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {
        "ListenAddress": "127.0.0.1", "Port": port, "HostKey": tmp_path / "host", "PidFile": "none",
        "AuthorizedKeysFile": tmp_path / "authorized", "StrictModes": "no", "UsePAM": "no",
        "PasswordAuthentication": "no", "KbdInteractiveAuthentication": "no", "PermitRootLogin": "yes",
    }  # fmt: skip
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    server = subprocess.Popen([program, "-D", "-e", "-f", "/dev/null", *words], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.05)
        yield [
            "ssh", "-F", "none", "-p", str(port), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
            "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={tmp_path / 'known'}",
            "-o", f"IdentityFile={tmp_path / 'id'}",
        ]  # fmt: skip
    finally:
        server.terminate()
        server.wait()
