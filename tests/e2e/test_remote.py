"""Machines that share nothing but an S3 server: one prepares, one trains, two look at what came of it."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from stages.catalog import STAGES
from tests.e2e.conftest import CHEAP, finish, manifests
from tests.launch.namespaces import machines
from tests.pipeline.remote import servers

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]
SERVER, PREPARES, TRAINS = range(3)
LARGER = [word for word in CHEAP if "_size=" not in word] + ["sft.batch_size=16", "model.hidden_size=256"]
"""A model whose weights are more than all else that a looker could be sent."""
PREPARED = {*takewhile(lambda name: name != "sft", STAGES)}
TRAINED = {*STAGES} - PREPARED


@pytest.fixture
def net(tmp_path):
    """Three machines on one cable, without a route elsewhere; S3 on the first."""
    (tmp_path / "served").mkdir()
    with machines(3, tmp_path, outside=True) as made:
        server = servers.rclone(tmp_path / "served", made.addresses[SERVER], made.insides[SERVER])
        with server as address:
            yield made, address


def on(net, number, command, store, *more, code=0):
    """Run a command on a machine; return its output."""
    made, address = net
    where = [f"store={store}", f"remote=s3://{servers.BUCKET}/x", f"remote.endpoint={address}"]
    line = [str(Path(sys.executable).with_name("grpoflow")), command, *LARGER, *where, *more]
    line, environment = [*made.insides[number], *line], {**os.environ, **servers.CREDENTIALS}
    done = finish(line, Path.cwd(), timeout=900, env=environment, code=code)
    return done.stdout + ("" if command == "plan" else done.stderr)


def received(net, number):
    """Return the bytes that a machine has received."""
    count = Path("/sys/class/net/eth0/statistics/rx_bytes")
    inside = [*net[0].insides[number], "unshare", "-m", "sh", "-c", f"mount -t sysfs s /sys && cat {count}"]
    return int(subprocess.run(inside, check=True, capture_output=True, text=True).stdout)


def test_a_second_machine_trains_from_the_remote_only(net, tmp_path):
    output = on(net, PREPARES, "run", tmp_path / "first", "--until", "split")
    assert set(manifests(tmp_path / "first")) == PREPARED, output
    shutil.rmtree(tmp_path / "first")
    net[0].cut(PREPARES)
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
