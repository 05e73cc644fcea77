"""Stages as jobs of a real Slurm: followed, found again, cancelled, queued again, and why they failed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.run.run import prepare_plan
from pipeline.store import history
from tests.e2e import sweeping
from tests.e2e.conftest import CHEAP
from tests.launch.cluster import CONTROLLER, cluster
from tests.processes import unanswered_download, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
LONG_S = 400.0
"""Longest time to wait for what takes seconds on a machine with nothing else to do."""
STARTED: list[subprocess.Popen[bytes]] = []
"""Processes that wait for jobs; killed at the end of each test."""
SLURM = ["launcher=slurm", "launcher.stages=all"]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with cluster(
        tmp_path_factory.mktemp("slurm"),
        partitions=(
            "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1",
            "PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10",
        ),
        settings=("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"),
    ) as daemons:
        yield daemons


@pytest.fixture
def store(running, tmp_path):
    """A store; jobs that a failed test leaves in the queue are cancelled."""
    yield tmp_path / "store"
    for process in STARTED:
        process.kill()
        process.wait()
    STARTED.clear()
    subprocess.run(["scancel", "-u", "root"], check=True)
    wait_until(lambda: not jobs(), LONG_S, describe=jobs)


def jobs():
    """Return the ids and states of all jobs in the queue."""
    shown = subprocess.run(["squeue", "-h", "-o", "%i %T"], capture_output=True, text=True, check=True).stdout
    return dict(line.split() for line in shown.splitlines())


def line(store, *overrides, stages="--until=tokenize"):
    program = str(Path(sys.executable).parent / "grpoflow")
    return [program, "run", stages, f"store={store}", *CHEAP, *SLURM, *overrides]


def start(store, *overrides, **options):
    """Start a run that waits for its jobs; its output is in a file next to the store."""
    output = (store.parent / "output").open("ab")
    words = line(store, *overrides, **options)
    STARTED.append(subprocess.Popen(words, cwd=store.parent, stdout=output, stderr=subprocess.STDOUT))
    return STARTED[-1]


def output(store):
    return (store.parent / "output").read_text()


def finish(store, *overrides, code=0, **options):
    process = start(store, *overrides, **options)
    assert process.wait(LONG_S) == code, output(store)
    return output(store)


def submitted(store, files="slurm-*.log"):
    """Return the number of jobs of each stage that began; with job.sbatch, of those that were submitted."""
    logs = Path(store, ".logs")
    counts = Counter(path.parent.name.rpartition("-")[0] for path in logs.glob(f"*/{files}"))
    return dict(counts)


def held(*jobs_of):
    """Return the option that keeps jobs of stages in the queue."""
    return [f'launcher.slurm.{stage}=["--hold"]' for stage in jobs_of]


def release():
    for number in jobs():
        subprocess.run(["scontrol", "release", number], check=True)


def test_each_stage_is_a_job_and_its_artifact_the_same(store, tmp_path):
    finish(store)
    stages = {"fetch", "fetch_dataset", "convert", "tokenize"}
    assert submitted(store) == dict.fromkeys(stages, 1)
    plan, made = prepare_plan([*CHEAP, f"store={store}"])
    assert all(made.problem(plan.spec(stage).key, deep=True) is None for stage in stages)
    (run,) = history.runs(store).values()
    assert run.state == "finished" and not jobs()


@pytest.mark.long
def test_some_stages_are_jobs_and_the_others_run_here(store):
    finish(store, "launcher.stages=[tokenize]")
    assert submitted(store) == {"tokenize": 1}


@pytest.mark.long
@pytest.mark.parametrize("ends", ["while it waits", "before the job begins"])
def test_a_killed_process_is_replaced_by_one_that_finds_the_job(store, ends):
    process = start(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
    wait_until(jobs, LONG_S, process, lambda: output(store))
    (number,) = jobs()
    process.kill()
    process.wait()
    if ends == "while it waits":  # the job ends while nobody waits for it
        release()
        wait_until(lambda: not jobs(), LONG_S, describe=jobs)
        finish(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
    else:
        process = start(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
        wait_until(
            lambda: "which was submitted before" in output(store), LONG_S, process, lambda: output(store)
        )
        assert list(jobs()) == [number]
        release()
        assert process.wait(LONG_S) == 0, output(store)
    assert submitted(store) == {"fetch_dataset": 1}


@pytest.mark.long
def test_ctrl_c_cancels_the_jobs_and_a_lost_terminal_does_not(store):
    process = start(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
    wait_until(jobs, LONG_S, process, lambda: output(store))
    process.send_signal(signal.SIGHUP)
    assert process.wait(LONG_S) == 129 and len(jobs()) == 1
    process = start(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
    wait_until(lambda: "which was submitted before" in output(store), LONG_S, process, lambda: output(store))
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(LONG_S) == 130, output(store)
    wait_until(lambda: not jobs(), LONG_S, describe=jobs)
    finish(store, stages="--only=fetch_dataset")


def test_a_cancelled_job_fails_the_run_and_says_why(store):
    process = start(store, *held("fetch_dataset"), "launcher.retries=3", stages="--only=fetch_dataset")
    wait_until(jobs, LONG_S, process, lambda: output(store))
    (number,) = jobs()
    subprocess.run(["scancel", number], check=True)
    assert process.wait(LONG_S) == 1
    assert re.search(rf"stage fetch_dataset failed: Slurm job {number}: CANCELLED", output(store))
    assert "started again" not in output(store)


@pytest.mark.long
def test_a_failed_stage_shows_its_own_reason(store, tmp_path):
    good, bad = '{"question": "1+1?", "answer": "#### 2"}\n', '{"question": "1+1?", "answer": "two"}\n'
    (tmp_path / "train.jsonl").write_text(good + bad)
    (tmp_path / "test.jsonl").write_text(good)
    data = ["dataset=gsm8k", f"dataset.path={tmp_path}", "dataset.train_rows=null", "dataset.test_rows=null"]
    shown = finish(store, *data, "launcher.retries=1", stages="--only=tokenize", code=1)
    reason = shown.partition("stage tokenize failed: exit code 1 (Slurm job ")[2]
    assert "train.jsonl:2: the answer has no '#### '" in reason
    assert submitted(store)["tokenize"] == 1  # it would fail again


def test_a_job_that_slurm_refuses_fails_at_once(store):
    shown = finish(store, 'launcher.sbatch=["--partition=nosuch"]', code=1)
    assert "Slurm refuses it" in shown and "nosuch" in shown and not jobs()


@pytest.mark.long
def test_a_job_that_is_killed_is_started_again_with_the_reason(store):
    """The first job is killed as the kernel does without memory; the second one succeeds."""
    process = start(store, *held("fetch_dataset"), "launcher.retries=1", stages="--only=fetch_dataset")
    wait_until(jobs, LONG_S, process, lambda: output(store))
    (first,) = jobs()
    script = next(Path(store, ".logs").glob("fetch_dataset-*/job.sbatch"))
    # the held job keeps its copy of the script: end it in a state that is no cancellation
    subprocess.run(["scontrol", "update", f"jobid={first}", "timelimit=1"], check=True)
    script.with_name("job.json").rename(script.with_name("job.kept"))  # its program cannot start
    release()
    wait_until(lambda: "started again (1 of 1)" in output(store), LONG_S, process, lambda: output(store))
    wait_until(lambda: jobs() and first not in jobs(), LONG_S, process, jobs)
    release()
    assert process.wait(LONG_S) == 0, output(store)
    assert f"Slurm job {first}: FAILED (exit code 1" in output(store)


@pytest.mark.long
@pytest.mark.parametrize("when", ["it follows a job", "it submits one"])
def test_the_controller_may_be_away_for_a_while(store, when):
    """Its process is stopped; Slurm's programs give up after a time."""
    controller = int(Path(os.environ["SLURM_CONF"]).with_name("slurmctld.pid").read_text())
    if when == "it follows a job":
        process = start(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
        wait_until(jobs, LONG_S, process, lambda: output(store))
    os.kill(controller, signal.SIGSTOP)
    try:
        if when == "it submits one":
            process = start(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
        message = "the job goes on" if when == "it follows a job" else "waiting until it answers"
        wait_until(lambda: message in output(store), LONG_S, process, lambda: output(store))
    finally:
        os.kill(controller, signal.SIGCONT)
    wait_until(jobs, LONG_S, process, lambda: output(store))
    release()
    assert process.wait(LONG_S) == 0, output(store)
    assert submitted(store) == {"fetch_dataset": 1}


@pytest.mark.long
def test_a_job_that_the_controller_loses_is_submitted_again(running, store):
    """The controller writes its state every few seconds; if it is killed, jobs of the last ones are lost."""
    process = start(store, *held("fetch_dataset"), stages="--only=fetch_dataset")
    wait_until(jobs, LONG_S, process, lambda: output(store))
    (number,) = jobs()
    running.kill(CONTROLLER)
    for file in (running.directory / "state").glob("job_state*"):
        file.unlink()
    running.start(CONTROLLER)
    text = f"Slurm has lost job {number}"
    wait_until(lambda: text in output(store) and jobs(), LONG_S, process, lambda: output(store))
    release()
    assert process.wait(LONG_S) == 0, output(store)
    assert submitted(store) == {"fetch_dataset": 1} and "started again" not in output(store)


TRAINING = ["sft.steps=60", "sft.check_every=60", "launcher.stages=[sft]"]


def wait_for_steps(store, process, steps):
    """Wait until sft, in a job, has taken some steps."""

    def taken():
        files = [*Path(store).glob(".work/sft-*/metrics.jsonl")]
        return files[0].read_text().count("\n") if files else 0

    wait_until(lambda: taken() >= steps, LONG_S, process, lambda: output(store))


@pytest.mark.long
def test_a_training_that_is_queued_again_resumes(store):
    """As after preemption: Slurm ends the job's processes and starts it again."""
    process = start(store, *TRAINING, "sft.checkpoint_every=2", stages="--only=sft")
    wait_for_steps(store, process, 5)
    (number,) = jobs()
    subprocess.run(["scontrol", "requeue", number], check=True)
    assert process.wait(LONG_S) == 0, output(store)
    (result,) = Path(store).glob("sft/*/result.json")
    assert json.loads(result.read_text())["resumed_from"] >= 4
    assert submitted(store) == {"sft": 1}


@pytest.mark.long
def test_a_training_that_a_more_urgent_job_preempts_resumes(store):
    """A job of a partition with a higher priority needs the node."""
    process = start(store, *TRAINING, "sft.checkpoint_every=2", stages="--only=sft")
    wait_for_steps(store, process, 5)
    (number,) = jobs()
    line = [
        "sbatch",
        "--parsable",
        "--partition=urgent",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=sleep 5",
    ]
    urgent = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    wait_until(lambda: jobs().get(urgent) == "RUNNING", LONG_S, process, jobs)
    assert jobs()[number] == "PENDING"
    assert process.wait(LONG_S) == 0, output(store)
    (result,) = Path(store).glob("sft/*/result.json")
    assert json.loads(result.read_text())["resumed_from"] >= 4
    assert submitted(store) == {"sft": 1}
    shown = subprocess.run(["scontrol", "show", "job", number], capture_output=True, text=True).stdout
    assert "Restarts=1" in shown


@pytest.mark.long
def test_a_training_whose_time_limit_is_near_saves_its_last_step_and_goes_on(store):
    """The signal is the one that Slurm sends to the batch script; it has a resolution of a minute."""
    process = start(store, *TRAINING, "sft.checkpoint_every=1000", stages="--only=sft")
    wait_for_steps(store, process, 5)
    (number,) = jobs()
    subprocess.run(["scancel", "--batch", "--signal=USR1", number], check=True)
    assert process.wait(LONG_S) == 0, output(store)
    (result,) = Path(store).glob("sft/*/result.json")
    assert json.loads(result.read_text())["resumed_from"] >= 5
    assert submitted(store) == {"sft": 1}
    (log,) = Path(store).glob(".logs/sft-*/slurm-*.log")
    assert "its time limit is near: queued again" in log.read_text()
    assert "--signal=B:USR1@120" in log.with_name("job.sbatch").read_text()


@pytest.mark.long
def test_ctrl_c_lets_a_training_save_its_last_step(store):
    process = start(store, *TRAINING, "sft.checkpoint_every=1000", stages="--only=sft")
    wait_for_steps(store, process, 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG_S) == 130
    wait_until(lambda: not jobs(), LONG_S, describe=jobs)
    assert [*Path(store).glob(".work/sft-*/checkpoints/step_*/state.json")]


@pytest.mark.long
def test_a_stage_without_checkpoints_fails_at_its_time_limit(store):
    with unanswered_download() as files:
        process = start(store, *files, stages="--only=fetch_dataset")
        wait_until(lambda: "RUNNING" in jobs().values(), LONG_S, process, lambda: output(store))
        (number,) = jobs()
        wait_until(lambda: [*Path(store).glob(".logs/fetch_dataset-*/spec.json")], LONG_S, process)
        subprocess.run(["scancel", "--batch", "--signal=USR1", number], check=True)
        assert process.wait(LONG_S) == 1
    assert "its time limit is near, and it has written no checkpoint" in output(store)
    assert "raise --time in launcher.slurm.fetch_dataset" in output(store)


@pytest.mark.long
def test_points_of_a_sweep_share_the_jobs_of_equal_stages(store, tmp_path):
    program = str(Path(sys.executable).parent / "grpoflow")
    words = [f"store={store}", *CHEAP, *SLURM, "layout=dp2_mp1_pp1,dp1_mp2_pp1"]
    done = subprocess.run(
        [program, "sweep", "--cards=2", "--until=split", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shared = dict.fromkeys(("fetch", "fetch_dataset", "convert", "tokenize"), 1)
    assert submitted(store) == {**shared, "strategy": 2, "split": 2}


@pytest.mark.long
def test_a_point_that_fails_stops_no_other(store):
    program = str(Path(sys.executable).parent / "grpoflow")
    words = [f"store={store}", *CHEAP, *SLURM, *held("split"), "layout=dp2_mp1_pp1,dp1_mp2_pp1,dp1_mp1_pp1"]
    with (store.parent / "output").open("ab") as file:
        line = [program, "sweep", "--until=split", *words]
        process = subprocess.Popen(line, cwd=store.parent, stdout=file, stderr=subprocess.STDOUT)
    STARTED.append(process)
    wait_until(lambda: submitted(store, "job.sbatch").get("split") == 3 and len(jobs()) == 3, LONG_S, process)
    subprocess.run(["scancel", min(jobs(), key=int)], check=True)
    release()
    assert process.wait(LONG_S) == 1, output(store)
    states = Counter(point["state"] for point in sweeping.points(store))
    assert states == {"finished": 2, "failed": 1}, output(store)
    assert re.search(r"Slurm job \d+: CANCELLED", output(store))


@pytest.mark.long
def test_a_job_whose_training_falls_behind_is_cancelled_after_its_checkpoint(store, tmp_path):
    program = str(Path(sys.executable).parent / "grpoflow")
    words = [*sweeping.falling_behind(tmp_path), "launcher=slurm", "launcher.stages=[grpo]"]
    line = [program, "sweep", "--jobs=1", "--until=grpo", f"store={store}", *words]  # one after the other
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    good, bad = sweeping.points(store)
    assert good["state"] == "finished" and submitted(store) == {"grpo": 2} and not jobs()
    sweeping.stopped_after(store, bad)
