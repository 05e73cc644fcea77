"""Sweeps whose stages are jobs of a real Slurm, with kill -9 and scancel at random moments."""

import os
import random
import re
import subprocess
import time
from collections import Counter

import pytest

from tests.e2e import sleeping, sweeping
from tests.e2e.conftest import damage
from tests.launch.cluster import CONTROLLER, cluster
from tests.processes import living, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(3600)]
NODES, SEEDS, RATES = 2, 2, 3
KILLS_OF_A_SWEEP = 10
LONG_S = 400.0


@pytest.fixture(scope="module")
def daemons(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm"), count=NODES, cpus=2) as running:
        yield running


def queued():
    """Return the ids of all jobs in the queue; none while the controller is away."""
    shown = subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True)
    return shown.stdout.split()


def shown_queue():
    """Return id, state and reason of all jobs in the queue."""
    return subprocess.run(["squeue", "-h", "-o", "%i %T %r"], capture_output=True, text=True).stdout


def emptied():
    """Cancel what Slurm holds, which is an administrator's part, and return True if the queue is empty.

    A controller that is killed before it has saved that a job began starts it a second time. The node, where
    it still runs, refuses; Slurm drains the node and keeps the job.
    """
    for line in shown_queue().splitlines():
        if "held" in line.lower():
            subprocess.run(["scancel", line.split()[0]])
    return not queued()


class Trial:
    """A sweep that is repeated until it is complete, and what happened to it."""

    def __init__(self, directory, daemons, chance=None, points=(SEEDS, RATES), **seconds):
        directory.mkdir(exist_ok=True)
        self.points, self.seconds = sleeping.grid(*points), seconds
        seeds, rates = points
        self.expected = Counter({"split": seeds, "sft": seeds, "grpo": seeds * rates})
        self.store, self.journal = directory / "store", directory / "journal"
        self.output, self.daemons, self.chance = directory / "output", daemons, chance
        self.happened, self.process, self.known = [], None, {}

    def start(self):
        """Start the command, which waits for the jobs."""
        words = [*sleeping.overrides(self.store, **self.seconds), *self.points]
        words += ["launcher=slurm", "launcher.stages=all"]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                sleeping.command("sweep", words),
                cwd=self.store.parent,
                env=sleeping.environment(self.journal),
                stdout=output,
                stderr=output,
            )

    def end(self):
        """Kill the command and cancel its jobs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        subprocess.run(["scancel", "-u", "root"])
        wait_until(lambda: not queued(), LONG_S, describe=queued)

    def run(self, kills=0, pause_s=0.0):
        """Let something happen up to `kills` times, each after at most `pause_s`; then let the sweep end.

        Return the seconds that it took.
        """
        began = time.monotonic()
        self.start()
        for _ in range(kills):
            if not self.goes_on(self.chance.uniform(0.02, 1.0) * pause_s):
                break
            self.happened.append(self.disturb())
            self.check_kept()
        for _ in range(2):  # after a scancel the command is repeated
            if self.wait() == 0:
                break
            self.check_failed()
            self.start()
        assert self.wait() == 0, self.describe()
        wait_until(emptied, LONG_S, describe=shown_queue)
        return time.monotonic() - began

    def wait(self):
        """Wait for the end of the command; return its exit code."""
        wait_until(lambda: self.process.poll() is not None, LONG_S, describe=self.describe)
        return self.process.returncode

    def goes_on(self, seconds):
        """Wait; return False if the sweep is complete, and repeat the command if it failed after scancel."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        if code != 0:
            self.check_failed()
            self.start()
        return code != 0

    def check_failed(self):
        """Only a job that somebody cancels fails a sweep."""
        assert self.process.returncode == 1 and "scancel" in self.happened, self.describe()

    def disturb(self):
        """Kill something, and start it again if it is no job; return what."""
        events = ["process", "slurmd", "slurmctld", "scancel"]
        what = self.chance.choice(events)
        pause_s = self.chance.uniform(0.5, 6.0)
        number, place = self.chance.randrange(NODES), self.chance.random()
        if what == "scancel" and (jobs := queued()):
            subprocess.run(["scancel", jobs[int(place * len(jobs))]], check=True)
        elif what in ("slurmd", "slurmctld"):
            name = CONTROLLER if what == "slurmctld" else f"node{number}"
            self.daemons.kill(name)
            time.sleep(pause_s)
            self.daemons.start(name)
        else:
            what = "process"
            self.process.kill()
            self.process.wait()
            self.start()
        return what

    def check_kept(self):
        """Artifacts that were complete once are never made again."""
        now = sweeping.artifacts(self.store) if self.store.is_dir() else {}
        assert {name: now.get(name) for name in self.known} == self.known, self.describe()
        self.known = now

    def check_complete(self):
        """The store is complete, and each stage was begun again only if Slurm had ended its job."""
        self.check_kept()
        assert sweeping.count(self.store) == self.expected and damage(self.store) == [], self.describe()
        assert {point["state"] for point in sweeping.points(self.store)} == {"finished"}
        assert not list(self.store.glob("*/.building-*"))
        assert not living(self.store)
        events = sleeping.read(self.journal)
        assert events.keys() == self.known.keys()
        for artifact, lines in events.items():
            assert all(event.kind != "twice" for event in lines), self.describe()
            *killed, last = dict.fromkeys((event.pid, event.where) for event in lines)
            assert [event.kind for event in lines if event.pid == last[0]] == ["begin", "end"]
            assert all(self.was_ended(artifact, job) for _, job in killed), self.describe()
        return sum(event.kind == "begin" for lines in events.values() for event in lines)

    def was_ended(self, artifact, job):
        """Return True if Slurm ended a job's processes: cancelled, of a lost node, or lost itself."""
        log = self.store / ".logs" / artifact.replace("/", "-") / f"slurm-{job}.log"
        controller = (self.daemons.directory / f"{CONTROLLER}.out").read_text()
        how = rf"^.*(orphan|requeu|registered pending).*JobId={job}\b"
        ended = re.search(how, controller, re.IGNORECASE | re.MULTILINE)
        return ended is not None or "CANCELLED AT" in log.read_text()

    def describe(self):
        """Return what happened, for a failed assertion."""
        journal = self.journal.read_text() if self.journal.exists() else ""
        jobs = subprocess.run(["squeue"], capture_output=True, text=True).stdout
        nodes = subprocess.run(["sinfo", "-N", "-l"], capture_output=True, text=True).stdout
        return f"{self.store}\n{self.happened}\n{jobs}{nodes}{journal}\n{self.output.read_text()}"


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.long)])
def test_nothing_is_lost_and_nothing_runs_twice(daemons, tmp_path, kills):
    """The first sweep is left alone: its time tells how long to wait before each kill."""
    chance = random.Random(int(os.environ.get("SLURM_KILLS_SEED", "0")))
    happened, took_s, number = Counter(), 0.0, 0
    while happened.total() < kills:
        trial = Trial(tmp_path / f"sweep{number}", daemons, chance, split_s=0.5, sft_s=1.5, grpo_s=2.5)
        try:
            planned = min(KILLS_OF_A_SWEEP, kills - happened.total()) if number else 0
            seconds = trial.run(planned, took_s / max(1, planned))
            builds = trial.check_complete()
        finally:
            trial.end()
        needed = trial.expected.total()
        print(f"{seconds:.0f} s, {builds} builds of {needed} stages, {trial.happened}", flush=True)
        took_s = took_s or seconds
        happened += Counter(trial.happened)
        number += 1
    print(f"{happened.total()} in {number} sweeps: {dict(happened)}")


def begun(trial, stage):
    """Return the events of the only artifact of a stage; none before it begins."""
    events = sleeping.read(trial.journal) if trial.journal.exists() else {}
    return next((lines for artifact, lines in events.items() if artifact.startswith(stage)), [])


@pytest.mark.long
@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd"])
def test_a_daemon_may_be_away_for_a_minute(daemons, tmp_path, daemon):
    """Without slurmd for 20 s Slurm gives the job to the other node, where it waits for the first or its end.

    The process of the first goes on until slurmd, when it is back, ends it.
    """
    trial = Trial(tmp_path, daemons, points=(1, 1), split_s=0.1, sft_s=0.1, grpo_s=75.0)
    try:
        trial.start()
        wait_until(lambda: begun(trial, "grpo"), LONG_S, trial.process, trial.describe)
        (number,) = queued()
        shown = subprocess.run(["squeue", "-h", "-o", "%N"], capture_output=True, text=True, check=True)
        name = CONTROLLER if daemon == "slurmctld" else shown.stdout.strip()
        if daemon == "slurmctld":  # it saves later that a job has begun, and otherwise starts it again
            time.sleep(10)
        daemons.kill(name)
        time.sleep(60)
        if daemon == "slurmd":
            assert queued() == [number]
        daemons.start(name)
        assert trial.wait() == 0, trial.describe()
        wait_until(lambda: not queued(), LONG_S, describe=queued)
        trial.check_complete()
    finally:
        trial.end()
    if daemon == "slurmctld":
        assert [event.kind for event in begun(trial, "grpo")] == ["begin", "end"]
