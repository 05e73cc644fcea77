"""Stages as jobs of a real Ray: followed, found again, stopped, submitted again, and why they failed.

Ray and its dashboard are those of this interpreter (ray[default]), or of the environment for verl that `make
upstream` fills; the tests are skipped without either.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import requests

from launch.nodes import ray_job
from launch.nodes.ray_node import REGISTERED, free_port
from pipeline.run.run import prepare_plan
from pipeline.store import history
from tests.e2e import sleeping, sweeping
from tests.e2e.conftest import CHEAP
from tests.processes import wait_until

pytestmark = pytest.mark.slow
LONG_S = 400.0
"""Longest time to wait for what takes seconds on a machine with nothing else to do."""
START_TIMEOUT_S = 30
"""Seconds after which the cluster gives up a job that has found no resources; the worker of a job that has
found them needs ten on a busy machine."""
NODE = "127.0.0.7"
UPSTREAM = sleeping.ROOT / "upstream/venv-verl/bin/python"
JOBS_API = "import ray.dashboard.modules.job.job_head"
PROCESSES: list[subprocess.Popen[bytes]] = []
"""Processes that wait for jobs; killed at the end of each test."""


def interpreter():
    """Return an interpreter with Ray's dashboard."""
    for python in (sys.executable, str(UPSTREAM)):
        if (
            Path(python).exists()
            and subprocess.run([python, "-c", JOBS_API], capture_output=True).returncode == 0
        ):
            return python
    pytest.skip("needs Ray with its dashboard: pip install 'ray[default]', or make upstream ONLY=verl")


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    """Address of the dashboard of a cluster with two CPUs and two NPUs, which it only counts."""
    python, directory = interpreter(), tmp_path_factory.mktemp("ray")
    port, temporary, log = free_port(), f"/tmp/ray-jobs-{os.getpid()}", directory / "log"
    line = [str(Path(python).parent / "ray"), "start", "--head", "--block", f"--port={free_port()}"]
    line += [f"--node-ip-address={NODE}", f"--temp-dir={temporary}", "--disable-usage-stats"]
    line += ["--num-cpus=2", '--resources={"NPU": 2}', "--object-store-memory=80000000"]
    line += ["--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
    # with fixed ports the raylet does not wait until its agents have chosen some
    agents = ("dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent", "metrics-export")
    line += [f"--{agent}-port={free_port()}" for agent in agents]
    environment = {**os.environ, "SLEEPING_JOURNAL": str(directory / "journal"), "RAY_AUTH_MODE": "disabled"}
    environment |= {"RAY_JOB_START_TIMEOUT_SECONDS": str(START_TIMEOUT_S), "RAY_worker_niceness": "0"}
    environment.pop("PYTHONPATH", None)
    address = f"http://127.0.0.1:{port}"

    def is_ready():
        return REGISTERED in log.read_bytes() and answers(address)

    for _ in range(3):  # Ray gives a busy machine 30 s (ray/_private/node.py, raylet_start_wait_time_s)
        with log.open("wb") as output:
            head = subprocess.Popen(line, env=environment, stdout=output, stderr=output)
        wait_until(lambda: is_ready() or head.poll() is not None, LONG_S, describe=log.read_text)  # noqa: B023
        if head.poll() is None:
            break
    assert head.poll() is None, log.read_text()
    try:
        yield address
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(temporary, ignore_errors=True)


def answers(address):
    """Return True if the dashboard, and what it asks about jobs, are there."""
    try:
        return bool(ray_job.version(address)) and ray_job.ask(address, "GET", "jobs/").ok
    except ray_job.LaunchError:
        return False


class Runs:
    """Runs with one store, whose stages are jobs; a number of its own gives each test other artifacts."""

    def __init__(self, directory, dashboard, seed):
        self.store, self.dashboard, self.seed = directory / "store", dashboard, seed
        self.journal = directory / "journal"

    def start(self, *overrides, stages="--only=split", engine="sleeping"):
        """Start a run that waits for its jobs; its output is in a file next to the store."""
        words = sleeping.overrides(self.store)
        if engine != "sleeping":
            words = [f"store={self.store}", f"engine={engine}", *CHEAP]
        program = [sys.executable, "-m", "pipeline.cli", "run", stages]
        program += [f"--config-dir={sleeping.TOY / 'conf'}", *words, f"seed={self.seed}"]
        program += ["launcher=ray", f"launcher.ray_address={self.dashboard}", *overrides]
        with (self.store.parent / "output").open("ab") as output:
            PROCESSES.append(
                subprocess.Popen(
                    program,
                    cwd=self.store.parent,
                    env=sleeping.environment(self.journal),
                    stdout=output,
                    stderr=output,
                )
            )
        return PROCESSES[-1]

    def output(self):
        """Return the output of all runs so far, and what Ray says about their jobs."""
        shown = [(job["submission_id"], job["status"], job["message"]) for job in self.jobs()]
        return (self.store.parent / "output").read_text() + "".join(f"\n{each}" for each in shown)

    def finish(self, *overrides, code=0, **options):
        """Run to the end."""
        process = self.start(*overrides, **options)
        self.end(process, code)

    def end(self, process, code=0):
        """Wait for the end of a run."""
        wait_until(lambda: process.poll() is not None, LONG_S, describe=self.output)
        assert process.returncode == code, self.output()

    def wait_for(self, condition, process):
        """Wait while a run goes on."""
        wait_until(condition, LONG_S, process, self.output)

    def jobs(self, state=None):
        """Return the jobs of this store's artifacts, in the order of their submission."""
        mine = [job for job in requests.get(f"{self.dashboard}/api/jobs/").json() if job["submission_id"]]
        mine = [
            job for job in mine if str(self.store) in job["entrypoint"] and state in (None, job["status"])
        ]
        return sorted(mine, key=lambda job: job["start_time"])

    def jobs_that_began(self):
        """Return the jobs without those that a busy machine did not start in time."""
        return [job for job in self.jobs() if job["error_type"] != ray_job.START_TIMEOUT]

    def begun(self, journal):
        """Return the kinds of events of the stage split."""
        (artifact,) = {file.parent.name for file in self.store.glob(".logs/split-*/job.json")} or {None}
        events = sleeping.read(journal) if journal.exists() and artifact else {}
        return [event.kind for event in events.get(f"split/{(artifact or '').rpartition('-')[2]}", [])]


@pytest.fixture
def runs(dashboard, tmp_path, request):
    made = Runs(tmp_path, dashboard, 1 + request.session.items.index(request.node))
    yield made
    for process in PROCESSES:
        process.kill()
        process.wait()
    PROCESSES.clear()
    for job in [*made.jobs("RUNNING"), *made.jobs("PENDING")]:
        requests.post(f"{dashboard}/api/jobs/{job['submission_id']}/stop")


@pytest.fixture
def journal(dashboard, tmp_path_factory):
    """Journal of the sleeping stages; the cluster's environment names it."""
    (directory,) = tmp_path_factory.getbasetemp().glob("ray[0-9]*")
    return directory / "journal"


def test_each_stage_is_a_job_and_its_artifact_the_same(runs):
    runs.finish(engine="local", stages="--until=fetch_dataset")
    plan, made = prepare_plan([*CHEAP, f"store={runs.store}", f"seed={runs.seed}"])
    keys = [plan.spec(stage).key for stage in ("fetch", "fetch_dataset")]
    assert all(made.problem(key, deep=True) is None for key in keys)
    names = [job["submission_id"].rpartition("-")[0] for job in runs.jobs_that_began()]
    # Luigi may begin with either
    assert sorted(name.rpartition("-")[0] for name in names) == sorted(f"grpoflow-{key.flat}" for key in keys)
    (run,) = history.runs(runs.store).values()
    assert run.state == "finished"


def test_a_killed_process_is_replaced_by_one_that_finds_the_job(runs, journal):
    process = runs.start("engine.split_s=20")
    runs.wait_for(lambda: runs.begun(journal) == ["begin"], process)
    process.kill()
    process.wait()
    process = runs.start("engine.split_s=20")
    runs.wait_for(lambda: "which was submitted before" in runs.output(), process)
    runs.end(process)
    assert runs.begun(journal) == ["begin", "end"]
    assert len(runs.jobs_that_began()) == 1


@pytest.mark.long
def test_ctrl_c_stops_the_job(runs, journal):
    process = runs.start("engine.split_s=1000")
    runs.wait_for(lambda: runs.begun(journal) == ["begin"], process)
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG_S) == 130, runs.output()
    assert "split: cancelled Ray job grpoflow-split-" in runs.output()
    wait_until(lambda: runs.jobs("STOPPED") and not runs.jobs("RUNNING"), LONG_S, describe=runs.output)
    runs.finish("engine.split_s=0.1")
    assert runs.begun(journal) == ["begin", "begin", "end"]


@pytest.mark.long
def test_a_failed_stage_shows_its_own_reason(runs):
    runs.finish("engine.split_s=1e300", code=1)  # more seconds than time.sleep takes
    reason = runs.output().partition("stage split failed: exit code 1 (Ray job grpoflow-split-")[2]
    assert "OverflowError" in reason


@pytest.fixture
def busy(dashboard):
    """Id of a job that occupies both NPUs."""
    body = {"entrypoint": "exec sleep 1000", "entrypoint_resources": {"NPU": 2}}
    number = requests.post(f"{dashboard}/api/jobs/", json=body).json()["submission_id"]
    yield number
    requests.post(f"{dashboard}/api/jobs/{number}/stop")


@pytest.mark.long
def test_a_job_that_finds_no_resources_is_submitted_again(runs, dashboard, busy):
    process = runs.start("engine.split_s=0.1", "launcher.ray.split={NPU: 2}")
    runs.wait_for(lambda: "PENDING (for 2 NPU)" in runs.output(), process)
    process.send_signal(signal.SIGINT)  # Ray keeps a job that waits
    assert process.wait(LONG_S) == 130, runs.output()
    process = runs.start("engine.split_s=0.1", "launcher.ray.split={NPU: 2}")
    runs.wait_for(lambda: "found no free 2 NPU in" in runs.output(), process)
    requests.post(f"{dashboard}/api/jobs/{busy}/stop")
    runs.end(process)
    assert "and Ray ended it; submitted again" in runs.output()
    assert "which was submitted before" not in runs.output()
    wait_until(lambda: len(runs.jobs("SUCCEEDED")) == 1, LONG_S, describe=runs.output)
    assert len(runs.jobs()) >= 3


@pytest.mark.long
def test_ctrl_c_lets_a_training_save_its_last_step(runs):
    """Ray ends processes 3 s after SIGTERM unless the job says otherwise; a step may take longer."""
    training = ["sft.steps=60", "sft.check_every=60", "sft.checkpoint_every=1000", "launcher.stages=[sft]"]
    process = runs.start(*training, engine="local", stages="--only=sft")

    def steps():
        files = [*runs.store.glob(".work/sft-*/metrics.jsonl")]
        return files[0].read_text().count("\n") if files else 0

    runs.wait_for(lambda: steps() >= 3, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG_S) == 130
    wait_until(lambda: runs.jobs("STOPPED"), LONG_S, describe=runs.output)
    (state,) = runs.store.glob(".work/sft-*/checkpoints/step_*/state.json")
    assert json.loads(state.read_text())


def sweep(runs, *words):
    """Run a sweep whose stages are jobs to its end."""
    program = str(Path(sys.executable).parent / "grpoflow")
    line = [program, "sweep", f"store={runs.store}", "launcher=ray", f"launcher.ray_address={runs.dashboard}"]
    done = subprocess.run([*line, *words], cwd=runs.store.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_points_of_a_sweep_share_the_jobs_of_equal_stages(runs):
    sweep(runs, "--until=split", *CHEAP, "layout=dp2_mp1_pp1,dp1_mp2_pp1")
    names = Counter(job["submission_id"].split("-")[1] for job in runs.jobs_that_began())
    shared = dict.fromkeys(("fetch", "fetch_dataset", "convert", "tokenize"), 1)
    assert names == {**shared, "strategy": 2, "split": 2}


@pytest.mark.long
def test_a_job_whose_training_falls_behind_is_stopped_after_its_checkpoint(runs):
    words = [*sweeping.falling_behind(runs.store.parent), "launcher.stages=[grpo]"]
    sweep(runs, "--jobs=1", "--until=grpo", *words)  # one after the other
    good, bad = sweeping.points(runs.store)
    assert good["state"] == "finished" and len(runs.jobs_that_began()) == 2 and not runs.jobs("RUNNING")
    sweeping.stopped_after(runs.store, bad)
