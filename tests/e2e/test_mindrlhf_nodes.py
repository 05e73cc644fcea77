"""engine=mindrlhf on several machines out of network namespaces: real ssh, Slurm and msrun."""

import json
import subprocess

import pytest

from tests.e2e.mindrlhf import BASE, begin, rows, run, wait_for_hanging
from tests.e2e.outside import STEPS, artifact, dry_run, weights_moved
from tests.launch.cluster import cluster
from tests.launch.namespaces import machines
from tests.processes import living, wait_until

pytestmark = [pytest.mark.nodes, pytest.mark.long]  # in the default suite: tests/launch/test_nodes.py
MEET = "+engine.env.STANDIN_MEET=1"
"""Workers meet through MindSpore, as real ones do; it costs each an import."""


@pytest.fixture
def store(mindrlhf_store):
    return mindrlhf_store


def on_machines(made):
    """Overrides for one worker on each machine."""
    return [
        "launcher=ssh",
        f"launcher.hosts=[{','.join(made.addresses)}]",
        f"launcher.ssh={json.dumps(made.ssh)}",
        "launcher.cards_per_node=1",
        "launcher.grace_s=2",
    ]


def check_resumed(store):
    result = json.loads((artifact(store, "grpo") / "result.json").read_text())
    assert (result["resumed_from"], result["steps"]) == ([0, 6], STEPS)
    assert [row["step"] for row in rows(store)] == list(range(1, STEPS + 1))
    assert weights_moved(store) == {float(STEPS)}
    assert not living(store)


@pytest.mark.parametrize(("count", "overrides"), [(2, []), (4, ["layout=dp1_mp2_pp2", MEET])])
def test_a_lost_machine_is_named_and_the_run_resumes(store, tmp_path_factory, count, overrides):
    with machines(count, tmp_path_factory.mktemp("machines")) as made:
        settings = [*overrides, *on_machines(made)]
        first = begin(store, *settings)
        wait_for_hanging(first, store, count)
        made.cut(1)
        _, output = first.communicate(timeout=240)
        assert first.returncode == 1
        assert "node 10.77.0.2 ended with exit code 255 (ssh lost it)" in output
        made.mend(1)
        done = run(store, *settings)
    assert done.exit_code == 0, done.stderr
    logs = max(store.glob(".logs/grpo-*/attempt_*"))
    assert f"nodes {', '.join(made.addresses)};" in (logs / "start.log").read_text()
    if MEET in overrides:
        assert f"met as rank 1 of {count}" in (logs / "worker_1.log").read_text()
    check_resumed(store)


def test_the_scripts_of_a_dry_run_meet_when_each_is_started_on_its_machine(store, tmp_path_factory):
    logs = store.parent / "logs"
    with machines(2, tmp_path_factory.mktemp("machines")) as made:
        scripts = dry_run(store, *BASE, MEET, *on_machines(made))
        assert [script.name for script in scripts] == ["node_0.sh", "node_1.sh"]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(store), "LOG_DIR": str(logs)}
        meeting = {"MASTER_ADDR": made.addresses[0], "MASTER_PORT": "8118"}
        started = [
            subprocess.Popen([*inside, "bash", str(script)], env=environment | meeting)
            for inside, script in zip(made.insides, scripts, strict=True)
        ]
        assert [node.wait(120) for node in started] == [0, 0]
    for rank in (0, 1):
        assert f"met as rank {rank} of 2" in (logs / f"worker_{rank}.log").read_text()
    assert "run grpo train end" in (logs / "worker_0.log").read_text()


@pytest.mark.slurm
@pytest.mark.parametrize("requeue", [True, False])
def test_a_machine_that_slurm_loses_is_named_and_the_run_resumes(store, tmp_path_factory, requeue):
    """The job resumes by itself when a node is available; with --no-requeue, when the command is repeated."""
    slurm = ["launcher=slurm", "launcher.cards_per_node=1", "+engine.env.STANDIN_ONCE=1"]
    slurm += [] if requeue else ["launcher.sbatch=[--no-requeue]"]
    made = machines(2, tmp_path_factory.mktemp("machines"), outside=True)
    with made as nodes, cluster(tmp_path_factory.mktemp("slurm"), nodes):
        job = begin(store, *slurm)
        wait_for_hanging(job, store, 2)
        nodes.cut(1)
        (log,) = store.glob(".logs/grpo-*/attempt_*/slurm-*.log")
        wait_until(lambda: "node1" in log.read_text(), 120, describe=log.read_text)
        if requeue:
            nodes.mend(1)
            _, output = job.communicate(timeout=300)
        else:
            _, output = job.communicate(timeout=120)
            assert job.returncode == 1
            assert "Node failure on node1" in output
            nodes.mend(1)  # Slurm sees it a minute later
            done = run(store, *slurm)
            output = done.stderr
        assert (job.returncode if requeue else done.exit_code) == 0, output
    check_resumed(store)
