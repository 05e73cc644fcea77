"""kill -9 of `run` or `sweep` alone: the stage that it was running must not run on."""

import socket
import subprocess
import sys
import time

import pytest

from tests.processes import living, wait_until


@pytest.mark.parametrize(
    "command",
    [["run"], ["run", "--workers", "2"], ["sweep", "--cards", "2"]],
    ids=["run", "run with forks", "sweep"],
)
def test_a_stage_ends_with_its_parent(tmp_path, command):
    """The stage waits for a server that never answers."""
    store = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/rows.jsonl"
        line = [sys.executable, "-m", "pipeline.cli", *command, "--only", "fetch_dataset", f"store={store}"]
        line += ["dataset=gsm8k", "dataset.source=url", "dataset.hub=null", "layout=dp1_mp1_pp1"]
        line += [f"dataset.files.{split}.name={address}" for split in ("train", "test")]
        process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: living(store), 120, process, lambda: process.communicate(timeout=30)[1])
        time.sleep(1)  # until the stage has begun to wait
        assert living(store)
        process.kill()
        process.wait()
        wait_until(lambda: not living(store), 60, describe=lambda: f"still running: {living(store)}")
