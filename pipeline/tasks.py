"""Luigi tasks: RunGRPO, a variant of it by the name of each stage, and the tasks of a run's stages."""

from __future__ import annotations

import atexit
import configparser
import contextlib
import gc
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
from pipeline.run.run import Run, prepare_plan
from pipeline.store.store import DIGITS
from pipeline.terminal import install_streams
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


def build(runs: Sequence[Run], workers: int, cards: int) -> bool:
    """Build what is missing of several runs as one graph; return True if nothing failed."""
    for run in runs:
        _register(run, cards)
    tasks = [RunTask(run_id=run.id) for run in runs]
    done = luigi.build(
        tasks,
        scheduling.OwnScheduling(cards),
        workers=workers,
        local_scheduler=True,
        parallel_scheduling=False,
        log_level="ERROR",
        detailed_summary=True,
    )
    return done.status in (LuigiStatusCode.SUCCESS, LuigiStatusCode.SUCCESS_WITH_RETRY)


def _register(run: Run, cards: int) -> None:
    """Make a run known to its tasks, and set the number of cards that tasks may occupy together."""
    _runs[run.id] = run
    get_config().set("resources", scheduling.CARDS, str(cards))


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
        return 1 if scheduling.stays_alive() and not is_set else None

    @property
    def of_run(self) -> Run:
        """Run of this process that the task belongs to."""
        with _exit_if_invalid():
            if self.run_id not in _runs:
                remedy = f"use RunGRPO, or one of {', '.join(stage.task_name for stage in STAGES.values())}"
                rule = "is a part of a run, and not started by itself"
                raise ConfigError([Problem("luigi", self.task_family, rule, remedy)])
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
        """Number of cards that the stage occupies, which the scheduler limits."""
        stage = self.of_run.plan.spec(self.stage).stage
        return {scheduling.CARDS: stage.workers} if stage.computes else {}

    def requires(self) -> list[StageTask]:
        """Return the tasks of the stages whose artifacts this one reads."""
        inputs = self.of_run.plan.spec(self.stage).inputs
        return [self.of(self.of_run, stage) for stage in dict.fromkeys(key.stage for key in inputs.values())]

    def complete(self) -> bool:
        """Return True if the artifact is complete."""
        return self.of_run.is_complete(self.stage)

    def run(self) -> None:
        """Build the artifact."""
        try:
            signals.end_with_parent()
            self.of_run.build(self.stage)
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
    _is_reported = False

    def requires(self) -> list[StageTask]:
        """Return the tasks of all requested stages, so that a complete report hides no damage upstream."""
        return [StageTask.of(self.of_run, spec.name) for spec in self.of_run.plan.requested]

    def complete(self) -> bool:
        """Return True once this process has reported the result, which fully cached runs do, too."""
        return self._is_reported

    def run(self) -> None:
        """Report the result; the result line is the last line on stdout."""
        try:
            self.of_run.report()
        except REPORTED as error:  # Luigi's own message about it is suppressed
            report(error)
            raise
        self._is_reported = True


@contextlib.contextmanager
def _exit_if_invalid() -> Iterator[None]:
    """Print reported errors of the code inside, and end the process with exit code 2."""
    try:
        yield
    except REPORTED as error:
        install_streams()
        report(error)
        sys.exit(Exit.INVALID)


class OverridesParameter(luigi.Parameter):
    """Hydra overrides as one value: a shell-split string, or a JSON list.

    The value is a canonical JSON list, since Luigi compares parameters with == and shows them as text.
    """

    def parse(self, text: str) -> str:
        """Return canonical JSON of `text`; end the process if it is malformed."""
        stripped = text.strip()
        with _exit_if_invalid():
            if not stripped:  # for example an unset variable, which would begin a default run
                rule = "is empty; leave it out for the defaults"
                raise ConfigError([Problem("--overrides", None, rule, QUOTING)])
            try:
                parsed = json.loads(stripped) if stripped.startswith("[") else shlex.split(stripped)
            except ValueError as error:
                rule = f"cannot be split into KEY=VALUE: {error}"
                raise ConfigError([Problem("--overrides", text, rule, QUOTING)]) from error
            if not all(isinstance(item, str) for item in parsed):
                rule = "a JSON list must hold text only"
                raise ConfigError([Problem("--overrides", text, rule, QUOTING)])
        return json.dumps(parsed)


class RunGRPO(RunTask):
    """GRPO post-training from fetch to report.

    Examples:
        luigi --module pipeline RunGRPO
        luigi --module pipeline RunGRPO --overrides 'seed=1 train.beta=0.02'
        luigi --module pipeline RunGRPO --overrides '["layout=dp2_mp1_pp1", "store=/data/store"]'
        luigi --module pipeline RunGRPO --until split                     (stop after split)
        luigi --module pipeline Split --overrides 'layout=dp2_mp1_pp1'    (split and everything upstream)
    """

    overrides: str = OverridesParameter(default="[]", description=OVERRIDES)
    config_dir: str | None = luigi.OptionalParameter(
        default=None, description="directory with your own config groups"
    )
    until: str | None = luigi.OptionalParameter(default=None, description="stop after this stage")
    only: str | None = luigi.OptionalParameter(default=None, description=ONLY)
    force: str | None = luigi.OptionalParameter(default=None, description=FORCE)
    run_id = ""  # no parameter here: a new run begins

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.run_id = self._begin()
        parser = CmdlineParser.get_instance()
        if parser is None or parser.known_args.root_task != self.task_family:
            return
        if luigi.interface.core().local_scheduler and not self.of_run.missing():
            self.run()
            gc.freeze()  # saves a garbage collection at the interpreter's end
            sys.exit(Exit.DONE)  # setting up a Luigi worker would double the time of a fully cached run
        for note in scheduling.notes():
            print(f"note: {note}", file=sys.stderr, flush=True)
        atexit.register(self.of_run.report_unbuilt)  # Luigi itself ends without a message

    def _begin(self) -> str:
        """Begin the run of these parameters and return its id; end the process if they are invalid."""
        if CmdlineParser.get_instance() is not None:
            install_streams()
        signals.install()
        with _exit_if_invalid():
            check_working_directory()
            only, force = ([names] if names else [] for names in (self.only, self.force))
            target = Target.parse(self.until, only, force)
            directory, overrides = (
                Path(self.config_dir) if self.config_dir else None,
                json.loads(self.overrides),
            )
            planned, store = prepare_plan(overrides, directory, target=target)
            scheduling.check(planned.requested, planned.missing(store))
            run = Run(planned, store, overrides, config_dir=directory)
        _register(run, run.plan.config.cards)
        return run.id


for _stage in STAGES.values():  # `luigi … Split` is `luigi … RunGRPO --only split`
    _members = {"__doc__": _stage.summary, "__module__": __name__, "until": None, "only": _stage.name}
    globals()[_stage.task_name] = type(_stage.task_name, (RunGRPO,), _members)
