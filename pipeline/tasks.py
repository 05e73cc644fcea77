"""Luigi tasks: RunGRPO, a variant of it by the name of each stage, and the tasks of a run's stages.

Constructing a task has no effects. A run begins in `_begin`, when Luigi first asks RunGRPO whether it is
complete; that is also where Luigi's command ends if the run is invalid or nothing is missing.
"""

from __future__ import annotations

import atexit
import configparser
import gc
import json
import multiprocessing
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pipeline.errors import REPORTED, ConfigError, Exit, Problem, check_working_directory, report

try:
    import luigi
except configparser.Error as _error:  # Luigi reads luigi.cfg when it is imported
    _rule = f"cannot be read: {' '.join(str(_error).split())}"
    raise ConfigError([Problem("luigi.cfg", None, _rule, "correct it")]) from _error
from luigi.cmdline_parser import CmdlineParser
from luigi.configuration import get_config
from luigi.execution_summary import LuigiStatusCode

from pipeline import scheduling
from pipeline.plan.target import Target
from pipeline.run import signals
from pipeline.run.run import Run, begin
from pipeline.store.store import DIGITS
from pipeline.terminal import install_streams, say
from stages.catalog import STAGES

OVERRIDES = "Hydra overrides: a shell-split string or a JSON list"
QUOTING = """for example --overrides 'seed=1 train.beta=0.02' or '["seed=1"]'"""
ONLY = "run only these stages (separated by commas) and everything upstream of them"
FORCE = "rebuild these stages (separated by commas) and everything downstream"
PROCESS = f"{socket.gethostname()}:{os.getpid()}-{os.urandom(3).hex()}"
"""Name of this process, which forks of Luigi share."""

scheduling.set_defaults()


_runs: dict[str, Run] = {}
"""Runs that this process has begun, by id; forks of Luigi have copies."""


@dataclass(frozen=True)
class Queue:
    """Limits of a sweep whose stages run as Slurm jobs."""

    jobs: int
    """Jobs in the queue at the same time."""
    takes_cards: bool
    """False: the cards of a job's stage do not count, because Slurm decides when it runs."""


_queue: Queue | None = None


def build(runs: Sequence[Run], workers: int, cards: int, queue: Queue | None = None) -> bool:
    """Build what is missing of several runs as one graph; return True if nothing failed.

    At most `workers` stages run at the same time on this machine, and beside them the jobs of `queue`.
    """
    global _queue
    _queue = queue
    jobs = 0 if queue is None else queue.jobs
    _runs.update({run.id: run for run in runs})
    tasks = [RunTask(run_id=run.id) for run in runs]
    try:
        done = luigi.build(
            tasks,
            scheduling.OwnScheduling(cards, jobs),
            workers=workers + jobs,
            local_scheduler=True,
            parallel_scheduling=False,
            log_level="ERROR",
            detailed_summary=True,
        )
    except KeyboardInterrupt as error:
        if getattr(error, "number", None) != signal.SIGHUP:  # a lost terminal leaves Slurm's jobs alone
            for run in runs:
                run.cancel_jobs()
        raise
    return done.status in (LuigiStatusCode.SUCCESS, LuigiStatusCode.SUCCESS_WITH_RETRY)


class Task(luigi.Task):
    """Task of this process.

    A central scheduler shows the process, and does not take its task for the same one of another process:
    the store's locks let one of them build an artifact and the others wait for it, also after a kill.
    """

    run_id: str = luigi.Parameter(default="", significant=False)

    def to_str_params(self, only_significant: bool = False, only_public: bool = False) -> dict[str, str]:
        """Return the parameters with the process, for the task's identity and for Luigi's pages."""
        return {**super().to_str_params(only_significant, only_public), "process": PROCESS}

    @property
    def retry_count(self) -> int | None:
        """Number of failures after which a worker that stays alive gives up; None: as luigi.cfg says."""
        is_set = get_config().has_option("scheduler", "retry_count")
        return 1 if scheduling.waits_for_tasks() and not is_set else None

    @property
    def of_run(self) -> Run:
        """Run of this process that the task belongs to."""
        if self.run_id not in _runs:
            remedy = f"use RunGRPO, or one of {', '.join(stage.task_name for stage in STAGES.values())}"
            rule = "is a part of a run, and not started by itself"
            _refuse(ConfigError([Problem("luigi", self.task_family, rule, remedy)]))
        return _runs[self.run_id]


class StageTask(Task):
    """Stage of a run; runs of a process that need the same artifact share the task."""

    stage: str = luigi.Parameter(default="")
    fingerprint: str = luigi.Parameter(default="")
    store: str = luigi.Parameter(default="")

    @classmethod
    def of(cls, run: Run, stage: str) -> StageTask:
        """Return the task of a stage of a run."""
        digits = run.plan.spec(stage).key.fingerprint[:DIGITS]
        return cls(stage=stage, fingerprint=digits, store=str(run.store.root), run_id=run.id)

    @property
    def resources(self) -> dict[str, int]:
        """What the stage occupies, which the scheduler limits: cards, and in a sweep's queue also a place."""
        plan = self.of_run.plan
        stage, as_job = plan.spec(self.stage).stage, plan.config.launcher.runs_as_job(self.stage)
        place = {} if _queue is None else {scheduling.JOBS if as_job else scheduling.HERE: 1}
        takes_cards = stage.computes and (_queue is None or _queue.takes_cards or not as_job)
        return {**place, **({scheduling.cards_here(): stage.workers} if takes_cards else {})}

    def requires(self) -> list[StageTask]:
        """Return the tasks of the stages whose artifacts this one reads."""
        inputs = self.of_run.plan.spec(self.stage).inputs
        return [self.of(self.of_run, stage) for stage in dict.fromkeys(key.stage for key in inputs.values())]

    def complete(self) -> bool:
        """Return True if the artifact is complete."""
        if _asks_in_parallel() and self.run_id not in _runs:
            return False  # asked again before it is built
        return self.of_run.is_complete(self.stage)

    def run(self) -> Iterator[WaitTask]:
        """Build the artifact; while another process builds it, a central scheduler gives the cards away."""
        try:
            signals.end_with_parent()
            if scheduling.is_central() and self.of_run.is_built_elsewhere(self.stage):
                names = {"stage": self.stage, "fingerprint": self.fingerprint, "store": self.store}
                yield WaitTask(**names, run_id=self.run_id, asked=f"{time.time():.3f}")
            if not self.complete():
                self.of_run.build(self.stage)
        except KeyboardInterrupt as error:
            signals.leave_fork(error)
            raise


class WaitTask(StageTask):
    """Wait of a stage until no other process builds its artifact."""

    asked: str = luigi.Parameter(default="")
    """Time of the request: luigid does not start a task again that was done within the last seconds."""

    @property
    def resources(self) -> dict[str, int]:
        """Nothing: a process that waits occupies no cards."""
        return {}

    def requires(self) -> list[StageTask]:
        """Return nothing: the stage itself has waited for its inputs."""
        return []

    def complete(self) -> bool:
        """Return True if the artifact is complete, or can be built here: the other process may have died."""
        return not self.of_run.is_built_elsewhere(self.stage)

    def run(self) -> Iterator[WaitTask]:
        """Ask until it is so."""
        try:
            signals.end_with_parent()
            self.of_run.display.wait(self.stage)
            while not self.complete():
                time.sleep(1)
            yield from ()
        except KeyboardInterrupt as error:
            signals.leave_fork(error)
            raise


@StageTask.event_handler(luigi.Event.TIMEOUT)
def _report_timeout(task: StageTask, message: str) -> None:
    """Report that Luigi ended a stage, whose fork only knows that it was interrupted."""
    seconds = luigi.worker.worker().timeout
    cause = f"ended after {seconds} s: [worker] timeout in luigi.cfg; raise it, or leave it out"
    task.of_run.report_end(task.stage, cause)


class RunTask(Task):
    """Run of this process: its stages, and the report of its result."""

    run_id: str = luigi.Parameter(default="")

    def requires(self) -> list[StageTask]:
        """Return the tasks of all requested stages, so that a complete report hides no damage upstream."""
        return [StageTask.of(self.of_run, spec.name) for spec in self.of_run.plan.requested]

    def complete(self) -> bool:
        """Return True once this process has reported the result, which fully cached runs do, too."""
        return self.of_run.is_reported

    def run(self) -> None:
        """Report the result; the result line is the last line on stdout."""
        if self.of_run.is_reported:
            return  # fully cached, which a process of --parallel-scheduling did not know
        try:
            self.of_run.report()
        except REPORTED as error:  # Luigi's own message about it is suppressed
            report(error)
            raise


def _asks_in_parallel() -> bool:
    """Return True in a process of --parallel-scheduling, which was forked before the run began."""
    return multiprocessing.parent_process() is not None


def _refuse(error: Exception, code: Exit = Exit.INVALID) -> NoReturn:
    """Print an error and end Luigi's command; luigi.build raises the error and returns that it failed."""
    is_command = CmdlineParser.get_instance() is not None
    if is_command:
        install_streams()
    report(error)
    if not is_command:
        raise error
    sys.exit(code)


class RunGRPO(RunTask):
    """GRPO post-training from fetch to report.

    Examples:
        luigi --module pipeline RunGRPO
        luigi --module pipeline RunGRPO --overrides 'seed=1 train.beta=0.02'
        luigi --module pipeline RunGRPO --overrides '["layout=dp2_mp1_pp1", "store=/data/store"]'
        luigi --module pipeline RunGRPO --until split                     (stop after split)
        luigi --module pipeline Split --overrides 'layout=dp2_mp1_pp1'    (split and everything upstream)
    """

    overrides: str = luigi.Parameter(default="[]", description=OVERRIDES)
    config_dir: str | None = luigi.OptionalParameter(
        default=None, description="directory with your own config groups"
    )
    until: str | None = luigi.OptionalParameter(default=None, description="stop after this stage")
    only: str | None = luigi.OptionalParameter(default=None, description=ONLY)
    force: str | None = luigi.OptionalParameter(default=None, description=FORCE)
    run_id = ""  # no parameter here: a new run begins

    @property
    def of_run(self) -> Run:
        """Run of these parameters, which begins when Luigi first asks whether the task is complete."""
        if not self.run_id:
            run = _begin(self)
            _runs[run.id] = run
            self.run_id = run.id
        return _runs[self.run_id]

    def complete(self) -> bool:
        """Return True once the result is reported; a fully cached run is reported when it begins."""
        if _asks_in_parallel() and not self.run_id:
            return False  # begins in Luigi's own process
        return super().complete()


def _begin(task: RunGRPO) -> Run:
    """Begin the run of a task's parameters, and report it if nothing is missing.

    Luigi's command ends here if the run is invalid, or already complete.
    """
    parser = CmdlineParser.get_instance()
    if parser is not None:
        install_streams()
        atexit.register(gc.freeze)  # saves a garbage collection at the interpreter's end
    signals.install()
    try:
        check_working_directory()
        is_empty = parser is not None and getattr(parser.known_args, "overrides", None) == ""
        overrides = parse_overrides("" if is_empty else task.overrides)  # Luigi takes "" for the default
        directory = Path(task.config_dir) if task.config_dir else None
        only, force = ([names] if names else [] for names in (task.only, task.force))
        run = begin(overrides, directory, Target.parse(task.until, only, force), scheduling.check)
    except REPORTED as error:
        _refuse(error)
    if not run.missing():
        try:
            run.report()
        except REPORTED as error:
            _refuse(error, Exit.FAILED)
        if parser is not None and luigi.interface.core().local_scheduler:
            sys.exit(Exit.DONE)  # Luigi would only find that there is nothing to do
    elif parser is not None:
        for note in scheduling.notes():
            say(f"note: {note}", stderr=True)
        atexit.register(run.report_unbuilt)  # Luigi itself ends without a message
    return run


def parse_overrides(text: str) -> list[str]:
    """Return the overrides in a shell-split string or a JSON list; raise ConfigError if it is malformed."""
    stripped = text.strip()
    if not stripped:  # for example an unset variable, which would begin a default run
        rule = "is empty; leave it out for the defaults"
        raise ConfigError([Problem("--overrides", None, rule, QUOTING)])
    try:
        parsed = json.loads(stripped) if stripped.startswith("[") else shlex.split(stripped)
    except ValueError as error:
        rule = f"cannot be split into KEY=VALUE: {error}"
        raise ConfigError([Problem("--overrides", text, rule, QUOTING)]) from error
    if not all(isinstance(item, str) for item in parsed):
        raise ConfigError([Problem("--overrides", text, "a JSON list must hold text only", QUOTING)])
    return list(parsed)


for _stage in STAGES.values():  # `luigi … Split` is `luigi … RunGRPO --only split`
    _members = {"__doc__": _stage.summary, "__module__": __name__, "until": None, "only": _stage.name}
    globals()[_stage.task_name] = type(_stage.task_name, (RunGRPO,), _members)
