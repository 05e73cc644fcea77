"""Each check on the real thing where this machine has it: interpreters, ports, disks, an HTTP server."""

import socket
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from launch.machine import checks, environment
from launch.machine.environment import LIMITS, memory_bytes
from stages.engines import programs

GIB = 2**30

KNOWN = programs.known_versions("mindrlhf", "machine")
VLLM = programs.windows(programs.VERSIONS, "vllm")


@pytest.mark.parametrize("name", LIMITS)
def test_the_memory_of_a_container_counts(name, tmp_path):
    machine, file = memory_bytes(tmp_path), tmp_path / name
    file.parent.mkdir(exist_ok=True)
    for text, size in (("max\n", machine), (f"{2**63 - 4096}\n", machine), (f"{2**28}\n", 2**28)):
        file.write_text(text)
        assert memory_bytes(tmp_path) == size


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
        ("mindspore", "2.7.0", "ok"), ("vllm", "0.8.4.dev0+g296c657.d20250704.empty", "ok"),
        ("safetensors", "0.8.0", "problem"), ("numpy", None, "problem"),
    ],
)  # fmt: skip
def test_versions_of_an_engines_packages_are_checked(name, have, status):
    known = [item for item in KNOWN.packages + VLLM if item[0] == name]
    [check] = checks.packages(known, {name: have}.get, "python")
    assert check.status == status
    assert (name in check.remedy) == (status == "problem")


PINNED = {"mindspore": "2.7.0", "numpy": "1.26.4", "safetensors": "0.7.0"}
NEWEST = {"mindspore": "2.10.0", "numpy": "2.4.1", "safetensors": "0.7.0"}


def unsuitable(needed, versions):
    checked = environment.package_checks(needed, versions.get)
    return [check for check in checked if check.status == "problem"]


@pytest.mark.parametrize(
    ("versions", "package", "version"),
    [
        (PINNED, "mindspore", None), (PINNED, "mindspore", "2.6.0"), (PINNED, "mindspore", "2.11.0"),
        (PINNED, "numpy", "2.1.0"), (NEWEST, "mindspore", "2.9.0"), (NEWEST, "numpy", "3.0"),
        (PINNED, "safetensors", "0.8.0"), (NEWEST, "safetensors", None),
    ],
)  # fmt: skip
def test_a_version_that_breaks_this_process_is_reported(versions, package, version):
    assert unsuitable(["mindspore"], versions) == []
    (check,) = unsuitable(["mindspore"], {**versions, package: version})
    assert "pip install" in check.remedy
    assert check.name == (package if versions is PINNED or version is None else "numpy")


def test_each_package_is_checked_once():
    assert [check.name for check in environment.package_checks(["mindspore"], PINNED.get)] == [
        "numpy",
        "safetensors",
        "mindspore",
    ]
    (check,) = unsuitable(["mindspore"], {**PINNED, "numpy": "1.25.0"})
    assert check.name == "numpy"


def test_mindspore_counts_only_where_it_is_needed():
    without = {**NEWEST, "mindspore": None}
    assert unsuitable([], without) == unsuitable([], {**PINNED, "mindspore": "2.0", "numpy": "2.0"}) == []
    (check,) = unsuitable(["mindspore"], without)
    assert check.remedy.endswith("-m pip install 'grpoflow[local]'")


def test_the_engines_python_is_not_grpoflows(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.prefix) / "bin"))
    assert checks.interpreter(None) is None
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}:{tmp_path}")
    assert checks.interpreter(None) == str(tmp_path / "python")
    assert checks.interpreter("/opt/python") == "/opt/python"


def test_cards_are_counted(tmp_path):
    for name in ("davinci0", "davinci11", "davinci_manager"):
        (tmp_path / name).touch()
    assert checks.cards(2, tmp_path).status == "ok"
    assert checks.cards(3, tmp_path).status == "problem"


def test_a_port_in_use_is_a_problem():
    assert checks.port(None).status == "ok"
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = checks.port(server.getsockname()[1])
    assert check.status == "problem" and "launcher.master_port=" in check.remedy


FILES = {
    "cann": ("ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info",
             "package_name=Ascend-cann-toolkit\nversion={}\ninnerversion=V100R001C22\narch=aarch64\n"),
    "driver": ("driver/version.info", "Version={}\nascendhal_version=7.35.23\naicpu_version=1.0\n"),
}  # fmt: skip
"""Program -> file of its installer, and content."""


@pytest.mark.parametrize(
    ("program", "version", "status"),
    [
        ("cann", "8.1.RC1", "ok"), ("cann", "8.0.RC3", "problem"), ("cann", "8.3.RC1", "unknown"),
        ("cann", "none", "unknown"), ("driver", "24.1.rc3", "ok"), ("driver", "25.2.0", "ok"),
        ("driver", "24.0.1", "problem"), ("driver", "unnamed", "unknown"),
    ],
)  # fmt: skip
def test_versions_are_read_from_the_files_of_installers(tmp_path, program, version, status):
    check, window = getattr(checks, program), getattr(KNOWN, program)
    assert check(window, tmp_path).status == "problem"
    name, text = FILES[program]
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(text.format(version))
    result = check(window, tmp_path)
    assert result.status == status and (status == "unknown" or version in result.found)
    if program == "cann":
        assert (">=8.1,<8.3" in result.remedy) == (status != "ok")
        assert check(window, Path("/nowhere"), str(file.parents[1])).status == status  # ASCEND_HOME_PATH
        assert check(window, tmp_path, "/nowhere").status == "problem"
