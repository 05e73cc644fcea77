"""engine=mindspeed_rl on several Ray nodes at addresses of the loopback, an NPU each: one is lost midway."""

import json
import re
import subprocess

import psutil
import pytest

from launch.process.tree import JOB_VARIABLE
from tests.e2e.conftest import luigi
from tests.e2e.outside import result, rows
from tests.e2e.test_mindspeed_rl import BASE, STEPS, run, weights_moved
from tests.launch.launchers import several
from tests.processes import living, wait_until


def on_nodes(directory, count, layout):
    """Overrides for one card on each node."""
    settings = several(directory, count)
    return [
        f"layout={layout}",
        "launcher=ssh",
        f"launcher.hosts=[{','.join(settings.hosts)}]",
        f"launcher.ssh={json.dumps(settings.ssh)}",
        "launcher.cards_per_node=1",
        "launcher.grace_s=8",
        "+engine.env.STANDIN_DEVICES='1'",
    ]


def raylet(store, node):
    """Return the raylet of a run of this store."""
    (process_of_node,) = (
        process
        for process in map(psutil.Process, living(store))
        if process.name() == "raylet" and process.environ()[JOB_VARIABLE].endswith(f"@{node}")
    )
    return process_of_node


def last_log(store):
    """Return the logs of the last attempt's program and its workers."""
    logs = sorted(store.glob(".logs/grpo-*/attempt_*/worker_0.log"))
    return logs[-1].read_text() if logs else ""


@pytest.mark.long
@pytest.mark.parametrize(("count", "layout"), [(2, "dp1_mp2_pp1"), (4, "dp1_mp2_pp2")])
def test_a_node_lost_midway_is_named_and_the_run_goes_on(tmp_path, count, layout):
    store, nodes = tmp_path / "store", on_nodes(tmp_path, count, layout)
    first = subprocess.Popen(
        luigi(store, *BASE, *nodes, "+engine.env.STANDIN_STEP_S='6'"),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    wait_until(lambda: f"iteration: 3 / {STEPS}" in last_log(store), 240, first)
    raylet(store, 1).kill()
    output = first.communicate(timeout=120)[1]
    assert first.returncode == 1
    # told by itself, or, when the trainer notices first, by the first node
    assert re.search(r"error: (lost: )?node 127\.0\.0\.3 ", output), output
    assert not living(store)
    done = run(store, *nodes)
    assert done.exit_code == 0, done.stderr
    assert not living(store)
    text = last_log(store)
    assert f"ray: {count} of {count} NPUs are registered\n" in text
    assert all(f"127.0.0.{2 + node}:" in text for node in range(count)), text
    assert (result(store, "grpo")["resumed_from"], result(store, "grpo")["steps"]) == (2, STEPS)
    assert [row["step"] for row in rows(store, "grpo")] == list(range(1, STEPS + 1))
    assert weights_moved(store) == {STEPS}
