"""Start scripts run by bash, with an msrun that only tells how it was called."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launch import engine
from launch.scripts import EngineStart, Node, script
from tests.launch.launchers import local_launcher

LOCAL = local_launcher()
MSRUN = """#!/bin/sh
echo "cwd=$PWD pythonpath=$PYTHONPATH quoted=$QUOTED cann=$CANN"
for argument in "$@"; do echo "<$argument>"; done
"""


@pytest.fixture
def start(tmp_path: Path) -> EngineStart:
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "msrun").write_text(MSRUN)
    (binaries / "msrun").chmod(0o755)
    os.symlink("/bin/true", binaries / "python")
    (tmp_path / "set_env.sh").write_text("export CANN=$UNSET_BY_INTENT/cann\n")
    return EngineStart(
        program=("/home/main.py", "--config=/a b/$HOME.yaml"), workers=2, python=str(binaries / "python"),
        env={"QUOTED": "it's $HOME"}, python_path=("/rlhf", "/mf"),
        env_scripts=(str(tmp_path / "set_env.sh"),), container=(), directory=str(tmp_path / "run dir"),
    )  # fmt: skip


def run(text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True)


def test_one_node_finds_a_port_and_quotes_everything(start: EngineStart, tmp_path: Path) -> None:
    node = Node(0, None, 2)
    done = run(script(start, node, [node], tmp_path / "logs"), MASTER_PORT="4242", PYTHONPATH="/own")
    assert done.returncode == 0, done.stderr
    first, *arguments = done.stdout.splitlines()
    assert first == f"cwd={tmp_path}/run dir pythonpath=/rlhf:/mf:/own quoted=it's $HOME cann=/cann"
    assert "<--config=/a b/$HOME.yaml>" in arguments
    assert {"<--worker_num=2>", "<--local_worker_num=2>", "<--master_addr=127.0.0.1>"} <= set(arguments)
    assert "<--master_port=4242>" in arguments and not any("node_rank" in text for text in arguments)


def test_several_nodes_need_the_first_ones_address(start: EngineStart, tmp_path: Path) -> None:
    nodes = engine.nodes_of(20, LOCAL)
    assert [node.workers for node in nodes] == [8, 8, 4]
    text = script(replace(start, workers=20), nodes[2], nodes, tmp_path / "logs")
    assert "# Node 2 of 3: workers 16 to 19 of 20." in text
    refused = run(text)
    assert refused.returncode != 0 and "set MASTER_ADDR" in refused.stderr
    done = run(text, MASTER_ADDR="10.0.0.1")
    assert "<--node_rank=2>" in done.stdout and "<--master_addr=10.0.0.1>" in done.stdout


def test_our_own_virtual_environment_does_not_leak() -> None:
    import sys

    own = str(Path(sys.prefix) / "bin")
    base = {"PATH": f"{own}:/usr/bin", "PYTHONPATH": "/x", "VIRTUAL_ENV": sys.prefix, "HOME": "/h"}
    assert engine.environment(base) == {"PATH": "/usr/bin", "HOME": "/h"}
