"""The files of complete environments agree with the versions that doctor checks, and with those of tests."""

import re
from pathlib import Path

import pytest

from stages.engines.programs import fits
from stages.engines.verl.engine import LOCKS, lock_of, packages
from tests.upstream import sources

UPSTREAM = Path(sources.__file__).parent
CASES = [("cpu", "transformers"), ("cpu", "vllm"), ("npu", "vllm")]
PIN = re.compile(r"([\w.-]+)==([\w.+]+)")


def pins(file):
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    matches = [PIN.fullmatch(line) for line in lines]
    assert all(matches), [line for line, match in zip(lines, matches, strict=True) if not match]
    return {normal(match[1]): match[2] for match in matches}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(("device", "rollout"), CASES)
def test_each_package_that_is_checked_is_pinned_within_its_versions(device, rollout):
    pinned = pins(lock_of(device, rollout).file)
    for name, versions, _ in packages(device, rollout):
        assert fits(pinned[normal(name)], versions), name


def test_every_lock_is_used():
    assert {lock_of(*case).file for case in CASES} == set(LOCKS.iterdir())
    assert lock_of("npu", "sglang") is None


def test_versions_of_the_tests_environment_are_those_of_the_lock():
    lock, tested = pins(LOCKS / "cpu.txt"), pins(UPSTREAM / "verl.txt")
    assert {name: lock[name].removesuffix("+cpu") for name in tested} == tested


def test_the_command_installs_into_a_new_directory():
    command = lock_of("npu", "vllm").command
    assert command.startswith(
        "python3.11 -m venv ENV && VLLM_TARGET_DEVICE=empty ENV/bin/python -m pip install "
    )
    assert command.endswith(f"--requirement {LOCKS / 'npu.txt'}")
    assert "--no-deps" in lock_of("cpu", "vllm").command
