"""engine=mindrlhf on several machines out of network namespaces: real ssh, Slurm and msrun."""

import json
import subprocess

import pytest

from tests.e2e.conftest import run_plain
from tests.e2e.outside import MINDRLHF, begin, check_resumed, dry_run, standin, wait_for_workers
from tests.launch.cluster import cluster
from tests.launch.namespaces import machines
from tests.processes import wait_until

pytestmark = [pytest.mark.nodes, pytest.mark.long]  # in the default suite: tests/launch/test_nodes.py
MEET = "+engine.env.STANDIN_MEET=1"
"""Workers meet through MindSpore, as real ones do; it costs each an import."""


def on_machines(made):
    """Overrides for one worker on each machine."""
    return [
        "launcher=ssh", f"launcher.hosts=[{','.join(made.addresses)}]",
        f"launcher.ssh={json.dumps(made.ssh)}", "launcher.cards_per_node=1", "launcher.grace_s=2",
    ]  # fmt: skip


def begin_and_hang(store, workers, *overrides):
    """Start a run; return it when its workers hang at step 7."""
    run = begin(store, *MINDRLHF, *overrides, standin("hang@7"))
    wait_for_workers(run, store, "grpo", "step: 7 start", workers)
    return run


@pytest.mark.parametrize(("count", "overrides"), [(2, []), (4, ["layout=dp1_mp2_pp2", MEET])])
def test_a_lost_machine_is_named_and_the_run_resumes(mindrlhf_store, tmp_path_factory, count, overrides):
    store = mindrlhf_store
    with machines(count, tmp_path_factory.mktemp("machines")) as made:
        settings = [*overrides, *on_machines(made)]
        first = begin_and_hang(store, count, *settings)
        made.cut(1)
        _, output = first.communicate(timeout=240)
        assert first.returncode == 1
        assert "node 10.77.0.2 ended with exit code 255 (ssh lost it)" in output
        made.mend(1)
        run_plain(store, *MINDRLHF, *settings, code=0)
    logs = max(store.glob(".logs/grpo-*/attempt_*"))
    assert f"nodes {', '.join(made.addresses)};" in (logs / "start.log").read_text()
    if MEET in overrides:
        assert f"met as rank 1 of {count}" in (logs / "worker_1.log").read_text()
    check_resumed(store, 6, worker=3 if count == 4 else 0)


def test_the_scripts_of_a_dry_run_meet_when_each_is_started_on_its_machine(mindrlhf_store, tmp_path_factory):
    store, logs = mindrlhf_store, mindrlhf_store.parent / "logs"
    with machines(2, tmp_path_factory.mktemp("machines")) as made:
        scripts = dry_run(store, *MINDRLHF, MEET, *on_machines(made))
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
def test_a_machine_that_slurm_loses_is_named_and_the_run_resumes(mindrlhf_store, tmp_path_factory, requeue):
    """The job resumes by itself when a node is available; with --no-requeue, when the command is repeated."""
    store = mindrlhf_store
    slurm = ["launcher=slurm", "launcher.cards_per_node=1", "+engine.env.STANDIN_ONCE=1"]
    slurm += [] if requeue else ["launcher.sbatch=[--no-requeue]"]
    made = machines(2, tmp_path_factory.mktemp("machines"), outside=True)
    with made as nodes, cluster(tmp_path_factory.mktemp("slurm"), nodes):
        job = begin_and_hang(store, 2, *slurm)
        nodes.cut(1)
        (log,) = store.glob(".logs/grpo-*/attempt_*/slurm-*.log")
        wait_until(lambda: "node1" in log.read_text(), 120, describe=log.read_text)
        if requeue:
            nodes.mend(1)
            _, output = job.communicate(timeout=300)
            assert job.returncode == 0, output
        else:
            _, output = job.communicate(timeout=120)
            assert job.returncode == 1
            assert "Node failure on node1" in output
            nodes.mend(1)  # Slurm sees it a minute later
            run_plain(store, *MINDRLHF, *slurm, code=0)
    check_resumed(store, 6)


@pytest.mark.slurm
@pytest.mark.parametrize("event", [["scontrol", "requeue"], ["scancel", "--batch", "--signal=USR1"]])
def test_the_job_of_a_stage_resumes_on_its_nodes(mindrlhf_store, tmp_path_factory, event):
    """It is queued again by Slurm, and by itself after the signal that comes before the time limit.

    grpoflow runs on the first node of the job, and prepares the engine again.
    """
    store = mindrlhf_store
    slurm = ["launcher=slurm", "launcher.stages=[grpo]", "launcher.cards_per_node=1"]
    made = machines(2, tmp_path_factory.mktemp("machines"), outside=True)
    with made as nodes, cluster(tmp_path_factory.mktemp("slurm"), nodes):
        try:
            run = begin_and_hang(store, 2, *slurm, "+engine.env.STANDIN_ONCE=1")
            shown = subprocess.run(["squeue", "-h", "-o", "%i %D"], capture_output=True, text=True).stdout
            number, nodes_of_job = shown.split()
            assert nodes_of_job == "2"
            subprocess.run([*event, number], check=True)
            _, output = run.communicate(timeout=500)
            assert run.returncode == 0, output
        finally:  # the daemons' end would leave a job's processes
            subprocess.run(["scancel", "-u", "root"])
            wait_until(lambda: not subprocess.run(["squeue", "-h"], capture_output=True).stdout, 120)
    check_resumed(store, 6)
