"""Stages as jobs of Slurm or Ray (launcher.stages): this process waits, the job builds the artifact.

The job runs this module, which plans the run again and does what a run without a queue does: it locks, builds
and commits the artifact. So the waiting process may be killed: the next one finds the job by its name, or the
artifact in the store. Files of a job are next to the logs of its stage: job.json with what the job needs to
know, outcome.json with the reason of a failure, its output, and those of slurm_job.py and ray_job.py.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from launch.errors import LaunchError
from launch.nodes import slurm_job
from launch.nodes.slurm import job_name
from launch.nodes.stage_queue import Ending, Queue, Request, Status, Unanswered
from launch.process import child
from pipeline.config.sections import Config
from pipeline.errors import (
    REPORTED,
    ConfigError,
    Exit,
    InputError,
    Problem,
    StageFailed,
    StoreError,
    report,
    store_errors,
)
from pipeline.plan import job_resources
from pipeline.plan.graph import StageSpec
from pipeline.plan.process import PROGRESS
from pipeline.run import notify, signals
from pipeline.run.build import build, diagnosis
from pipeline.run.halving import METRICS, StoppedEarly
from pipeline.run.progress import Display, tail
from pipeline.store.store import JOB_LOCK, Store
from pipeline.terminal import say
from stages.base.context import WARNINGS
from stages.base.files import read_object, replace_file
from stages.own_packages import START

T = TypeVar("T")
JOB, OUTCOME = "job.json", "outcome.json"
POLL_S = 0.5
LONGEST_POLL_S = 10.0
"""Longest time between two questions to the cluster's controller, which many processes may ask."""
PATIENCE_S = 30.0
"""Time until an artifact that another machine has committed is visible on a shared file system."""
MOST_LOST = 3
"""How often a job that the controller has lost is submitted again."""
WEIGHTS = (".safetensors", ".ckpt", ".pt", ".distcp", ".bin")
"""Suffixes of files that checkpoints consist of."""


@dataclass(frozen=True)
class Job:
    """Data with which a job plans and builds the stage that its submitter planned."""

    stage: str
    fingerprint: str
    overrides: tuple[str, ...]
    config_dir: str | None
    run: str
    """Id of the run that submitted it."""
    replaces: str | None
    """Manifest digest of an existing artifact to rebuild; None: absent."""


def build_as_job(
    spec: StageSpec,
    store: Store,
    job: Job,
    config: Config,
    display: Display,
    check_metrics: Callable[[Path], None] = lambda metrics: None,
) -> bool:
    """Let a job of the launcher's queue build an artifact; return False if it was complete already.

    A job of the same artifact that is in the queue is followed, whoever submitted it. `check_metrics` is as
    in `build`; if it raises, the job is cancelled.

    Raises:
        StageFailed: the job ended without the artifact.
        LaunchError: the cluster refuses the job.
        StoreError: the store cannot be written.
    """
    queue = queue_of(spec, store, config)
    request = Request(
        spec.name,
        [sys.executable, START, "pipeline.run.stage_job", str(queue.logs / JOB)],
        Path.cwd(),
        job_resources.nodes(spec.stage, config),
        job_resources.resources(spec.stage, config),
        {key: value for key, value in os.environ.items() if key not in (notify.URL, notify.BODY)},
    )
    waiting = _Waiting(spec, store, job, queue, request, display, check_metrics)
    with store.lock(spec.key, lambda: display.wait(spec.name), JOB_LOCK):
        if waiting.is_built():
            return False
        display.start(spec.name)
        try:
            waiting.build()
        except StoppedEarly:
            waiting.cancel()
            raise
        return True


def queue_of(spec: StageSpec, store: Store, config: Config) -> Queue:
    """Return the queue with the jobs that build a stage's artifact."""
    name = job_name(store.work_dir(spec.key).absolute() / "job")
    logs, launcher = store.log_dir(spec.key).absolute(), config.launcher
    if launcher.name == "ray":
        from launch.nodes.ray_job import RayQueue  # here: it imports requests, which takes 60 ms

        return RayQueue(name, logs, launcher, job_resources.resources(spec.stage, config))
    return slurm_job.SlurmQueue(name, logs, launcher)


@dataclass(frozen=True)
class _Waiting:
    """Submission of a stage's job, and waiting for the artifact; nobody else waits for this artifact."""

    spec: StageSpec
    store: Store
    job: Job
    queue: Queue
    request: Request
    display: Display
    check_metrics: Callable[[Path], None]

    @property
    def logs(self) -> Path:
        """Directory with the job's files."""
        return self.queue.logs

    def build(self) -> None:
        """Submit or find the job, and follow it to the artifact; submit jobs again that never began."""
        with store_errors(self.store.root):
            self.logs.mkdir(parents=True, exist_ok=True)
        status = self.until_answered(self.running)
        if status is None:
            status = self.submit()
        else:
            self.display.print_line(f"{self.spec.name}: {status}, which was submitted before")
            _write(self.logs / JOB, asdict(self.job))  # from now on it is cancelled with this run
        times_lost = 0
        while (number := self.follow(status)) is not None:
            ending = self.until_answered(functools.partial(self.queue.ending, number))
            if ending is not None and ending.never_began:
                why = f"{self.queue.job(number)} {ending.text}"
            elif ending is None and not (self.logs / OUTCOME).exists():
                if self.is_built():
                    return
                if times_lost == MOST_LOST:
                    self.fail(number, Ending(f"ended, and {self.queue.cluster} has forgotten how"))
                times_lost += 1
                why = f"{self.queue.cluster} has lost job {number}, as after {self.queue.lost_by}"
            else:
                self.accept(number, ending or Ending("ended"))
                return
            # safe even if processes of a lost job still run: they hold the artifact's lock
            self.display.warn(self.spec.name, f"{why}; submitted again")
            status = self.submit()

    def is_built(self) -> bool:
        """Return True if the artifact is complete, and not the one to rebuild."""
        key = self.spec.key
        return self.store.problem(key) is None and self.store.manifest_digest(key) != self.job.replaces

    def running(self) -> Status | None:
        """Return the live job; wait for one that is being ended, for example after Ctrl-C."""
        while (status := self.queue.find()) is not None and status.is_ending:
            time.sleep(POLL_S)
        return status

    def until_answered(self, question: Callable[[], T]) -> T:
        """Call a function until the cluster answers: no job may be submitted twice because it was away."""
        has_warned = False
        while True:
            try:
                return question()
            except Unanswered as error:
                if not has_warned:
                    self.display.warn(self.spec.name, f"{error}; waiting until it answers")
                has_warned = True
                time.sleep(LONGEST_POLL_S / 2)

    def submit(self) -> Status:
        """Write the files of a job and submit it."""
        with store_errors(self.logs):
            (self.logs / OUTCOME).unlink(missing_ok=True)
        _write(self.logs / JOB, asdict(self.job))

        def submit_once() -> Status:
            status = self.running()  # the answer to the last attempt may have been lost
            if status is None:
                with store_errors(self.logs):
                    number = self.queue.submit(self.request)
                status = Status(self.queue.cluster, number, "PENDING")
            return status

        submitted = self.until_answered(submit_once)
        text = f"{self.queue.job(submitted.id)}, log {self.queue.log(submitted.id)}"
        self.display.print_line(f"{self.spec.name}: {text}")
        return submitted

    def follow(self, status: Status) -> str | None:
        """Show a job's progress until the artifact is complete; return its id if it left the queue before."""
        stage = self.spec.name
        shown, pause_s, next_question = "", POLL_S, 0.0
        warnings = _new_lines(self.logs / WARNINGS)
        has_warned = False
        while not self.is_built():
            if time.monotonic() >= next_question:
                try:
                    now = self.queue.look(status)
                except Unanswered as error:
                    if not has_warned:
                        self.display.warn(stage, f"{error}; the job goes on")
                    has_warned = True
                else:
                    has_warned = False
                    if now is None:
                        return status.id
                    status = now
                    if str(now) != shown and now.reason:  # just submitted it has no reason to wait yet
                        shown, pause_s = str(now), POLL_S
                        self.display.print_line(f"{stage}: {now}")
                pause_s = min(LONGEST_POLL_S, pause_s * 1.5)
                next_question = time.monotonic() + pause_s
            if status.state == "RUNNING":
                for line in next(warnings):
                    self.display.warn(stage, line)
                self.display.progress(stage, next(iter(tail(self.logs / PROGRESS, 4096)[-1:]), None))
                self.check_metrics(self.store.work_dir(self.spec.key) / METRICS)
            time.sleep(POLL_S)
        return None

    def accept(self, number: str, ending: Ending) -> None:
        """Wait until the artifact of a job that has ended is visible.

        Raises:
            StageFailed: the job ended without the artifact.
        """
        deadline = time.monotonic() + (PATIENCE_S if ending.succeeded else POLL_S)
        while not self.is_built():
            if time.monotonic() > deadline:
                self.fail(number, ending)
            time.sleep(POLL_S)

    def fail(self, number: str, ending: Ending) -> NoReturn:
        """Raise StageFailed with the reason why a job left no artifact."""
        how, log = f"{self.queue.job(number)}: {ending.text}", self.queue.log(number)
        lines = [*child.tail(self.logs / "stage.log", 10), *child.tail(log, 10)]
        failed = StageFailed(self.spec.name, how, log, lines, diagnosis(self.logs), ending.may_pass)
        if (self.logs / OUTCOME).exists():  # the job itself knows more
            with contextlib.suppress(InputError, KeyError, TypeError):
                known = read_object(self.logs / OUTCOME)
                cause, where, last = f"{known['cause']} ({how})", Path(known["log"]), list(known["tail"])
                failed = StageFailed(
                    self.spec.name, cause, where, last, known["diagnosis"], known["may_pass"]
                )
        raise failed

    def cancel(self) -> None:
        """Cancel the job, and wait until it has ended: it writes its checkpoint."""
        status = self.until_answered(self.queue.find)
        if status is not None:
            self.until_answered(functools.partial(self.queue.cancel, status))
        while self.until_answered(self.queue.find) is not None:
            time.sleep(POLL_S)


def _new_lines(file: Path) -> Iterator[list[str]]:
    """Yield, whenever it is asked, the complete lines of a file that are new since the last time."""
    known: list[str] = []
    while True:
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        *lines, _ = text.split("\n")
        new = lines[len(known) :] if lines[: len(known)] == known else lines  # another attempt began
        known = lines
        yield new


def cancel(specs: Sequence[StageSpec], store: Store, run: str, config: Config) -> None:
    """Cancel the jobs of stages that a run has submitted and that have not ended; the cluster may be away."""
    for spec in specs:
        with contextlib.suppress(LaunchError, InputError):
            queue = queue_of(spec, store, config)
            file = queue.logs / JOB
            if file.exists() and read_object(file).get("run") == run:
                status = queue.find()
                if status is not None and not status.is_ending:
                    queue.cancel(status)
                    say(f"{spec.name}: cancelled {queue.job(status.id)}", stderr=True)


def main(file: Path) -> int:
    """Build the stage of a job that the cluster has started; return the exit code."""
    from pipeline.run.run import prepare_plan  # here: run.py imports this module

    values = read_object(file)
    job = Job(**{**values, "overrides": tuple(values["overrides"])})
    logs, began = file.parent, time.time()
    (logs / OUTCOME).unlink(missing_ok=True)
    signals.install()
    signal.signal(signal.SIGUSR1, signals.raise_interrupted)
    try:
        directory = None if job.config_dir is None else Path(job.config_dir)
        planned, store = prepare_plan(list(job.overrides), directory)
        spec = next((spec for spec in planned.specs if spec.name == job.stage), None)
        if spec is None or spec.key.fingerprint != job.fingerprint:
            why = planned.skipped.get(job.stage, "a file, a package or grpoflow itself differs")
            rule = f"is planned differently on {os.uname().nodename} than where it was submitted: {why}"
            raise ConfigError([Problem(job.stage, None, rule, "use the same installation on all nodes")])
        launcher = planned.config.launcher
        nodes = job_resources.nodes(spec.stage, planned.config)
        # until SIGKILL of Slurm or Ray there is time to write a checkpoint
        grace_s = max(launcher.grace_s, launcher.notice_s - 15.0)
        inner = replace(launcher, name="slurm" if nodes > 1 else "local", stages=(), grace_s=grace_s)
        try:
            build(spec, store, inner, Display(), job.run, job.replaces)
        except signals.Interrupted as error:
            return _interrupted(error, spec, store, began)
    except REPORTED as error:
        _record(logs, job.stage, error)
        report(error)
        return Exit.FAILED
    return Exit.DONE


def _interrupted(error: signals.Interrupted, spec: StageSpec, store: Store, began: float) -> int:
    """Queue Slurm's job again if its time limit is near and it has a new checkpoint; return the exit code."""
    number = os.environ.get("SLURM_JOB_ID", "")
    if error.number == signal.SIGUSR1:
        if not _has_checkpoint(store.work_dir(spec.key), began):
            cause = "its time limit is near, and it has written no checkpoint since it began"
            remedy = f"raise --time in launcher.slurm.{spec.name}, or make checkpoints more often"
            raise StageFailed(spec.name, f"{cause}; {remedy}", store.log_dir(spec.key) / "stage.log", [])
        say("its time limit is near: queued again, to go on from its checkpoint", stderr=True)
        slurm_job.queue_again(number)
    return 128 + error.number


def _has_checkpoint(work: Path, since: float) -> bool:
    """Return True if a file of weights in a work directory is newer than `since` (Unix time, seconds)."""
    for file in work.rglob("*"):
        with contextlib.suppress(OSError):
            if file.suffix in WEIGHTS and file.stat().st_mtime >= since:
                return True
    return False


def _record(logs: Path, stage: str, error: Exception) -> None:
    """Write the reason of a failure for the process that waits."""
    if isinstance(error, StageFailed):
        values: dict[str, Any] = {"cause": error.cause, "log": str(error.log), "tail": error.tail}
        values |= {"diagnosis": list(error.diagnosis), "may_pass": error.may_pass}
    else:
        values = {"cause": str(error), "log": str(logs / "stage.log"), "tail": [], "diagnosis": []}
        values |= {"may_pass": True}
    with contextlib.suppress(StoreError):  # a full disk: the job's own log has the reason, too
        _write(logs / OUTCOME, values)


def _write(file: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file that another machine may read at any time."""
    with store_errors(file):
        replace_file(file, json.dumps(values, indent=1).encode())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
