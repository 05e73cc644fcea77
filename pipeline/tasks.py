"""Luigi tasks: RunGRPO, a variant of it by the name of each stage, and the tasks of a run's stages."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import luigi
from luigi.cmdline_parser import CmdlineParser
from luigi.configuration import get_config
from luigi.execution_summary import LuigiStatusCode
from luigi.rpc import RPCError

from pipeline.errors import REPORTED, ConfigError, Exit, Problem, check_working_directory, report
from pipeline.plan.target import Target
from pipeline.run import signals
from pipeline.run.run import Run, begin
from pipeline.store.store import DIGITS
from pipeline.terminal import install_streams
from stages.catalog import STAGES

OVERRIDES = "Hydra overrides: a shell-split string or a JSON list"
QUOTING = """for example --overrides 'seed=1 train.beta=0.02' or '["seed=1"]'"""
ONLY = "run only these stages (separated by commas) and everything upstream of them"
FORCE = "rebuild these stages (separated by commas) and everything downstream"
RETURN_CODES = (
    "already_running", "missing_data", "not_run", "task_failed", "scheduling_error", "unhandled_exception",
)  # fmt: skip


def _set_luigi_defaults() -> None:
    """Set what `luigi --module pipeline RunGRPO` needs without a luigi.cfg, which takes precedence."""
    defaults: dict[str, dict[str, object]] = {
        # By default Luigi would try to reach luigid for a minute.
        "core": {"local_scheduler": "--scheduler-host" not in " ".join(sys.argv), "no_lock": True},
        # Luigi exits 0 on failure by default.
        "retcode": dict.fromkeys(RETURN_CODES, int(Exit.FAILED)),  # as text: Python 3.10 writes Exit.FAILED
        # A stage without an artifact must fail.
        "worker": {"check_complete_on_run": True},
    }
    config = get_config()
    for section, values in defaults.items():
        for key, value in values.items():
            if not config.has_option(section, key):
                config.set(section, key, str(value).lower() if isinstance(value, bool) else str(value))
    for name in ("luigi", "luigi-interface"):
        logging.getLogger(name).addFilter(_filter_and_shorten)


def _filter_and_shorten(record: logging.LogRecord) -> bool:
    """Shorten a failure of the scheduler to one line; return True for errors that were not reported yet."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, RPCError):
        record.msg = f"Luigi's scheduler stopped answering: {error}; type the same command to go on"
        record.args, record.exc_info = (), None
    return record.levelno >= logging.ERROR and not isinstance(error, REPORTED)


_set_luigi_defaults()


_runs: dict[str, Run] = {}
"""Runs that this process has begun, by id; forks of Luigi have copies."""


def build(runs: Sequence[Run], workers: int, cards: int) -> bool:
    """Build what is missing of several runs as one graph; return True if nothing failed."""
    for run in runs:
        _register(run, cards)
    tasks = [RunTask(run_id=run.id) for run in runs]
    done = luigi.build(tasks, workers=workers, local_scheduler=True, log_level="ERROR", detailed_summary=True)
    return done.status in (LuigiStatusCode.SUCCESS, LuigiStatusCode.SUCCESS_WITH_RETRY)


def _register(run: Run, cards: int) -> None:
    """Make a run known to its tasks, and set the number of cards that tasks may occupy together."""
    _runs[run.id] = run
    get_config().set("resources", "cards", str(cards))


class StageTask(luigi.Task):
    """Stage of a run; runs that need the same artifact share the task."""

    stage: str = luigi.Parameter()
    fingerprint: str = luigi.Parameter()
    run_id: str = luigi.Parameter(significant=False)

    @classmethod
    def of(cls, run_id: str, stage: str) -> StageTask:
        """Return the task of a stage of a run."""
        digits = _runs[run_id].plan.spec(stage).key.fingerprint[:DIGITS]
        return cls(stage=stage, fingerprint=digits, run_id=run_id)

    @property
    def resources(self) -> dict[str, int]:
        """Number of cards that the stage occupies, which the scheduler limits."""
        stage = _runs[self.run_id].plan.spec(self.stage).stage
        return {"cards": stage.workers} if stage.computes else {}

    def requires(self) -> list[StageTask]:
        """Return the tasks of the stages whose artifacts this one reads."""
        inputs = _runs[self.run_id].plan.spec(self.stage).inputs
        return [self.of(self.run_id, stage) for stage in dict.fromkeys(key.stage for key in inputs.values())]

    def complete(self) -> bool:
        """Return True if the artifact is complete."""
        return _runs[self.run_id].is_complete(self.stage)

    def run(self) -> None:
        """Build the artifact."""
        try:
            signals.end_with_parent()
            _runs[self.run_id].build(self.stage)
        except KeyboardInterrupt as error:
            signals.leave_fork(error)
            raise


class RunTask(luigi.Task):
    """Run of this process: its stages, and the report of its result."""

    run_id: str = luigi.Parameter()
    _is_reported = False

    @property
    def _run(self) -> Run:
        return _runs[self.run_id]

    def requires(self) -> list[StageTask]:
        """Return the tasks of all requested stages, so that a complete report hides no damage upstream."""
        return [StageTask.of(self._run.id, spec.name) for spec in self._run.plan.requested]

    def complete(self) -> bool:
        """Return True once this process has reported the result, which fully cached runs do, too."""
        return self._is_reported

    def run(self) -> None:
        """Report the result; the result line is the last line on stdout."""
        try:
            self._run.report()
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
        is_root = parser is not None and parser.known_args.root_task == self.task_family
        if is_root and luigi.interface.core().local_scheduler and not self._run.missing():
            self.run()
            gc.freeze()  # saves a garbage collection at the interpreter's end
            sys.exit(Exit.DONE)  # setting up a Luigi worker would double the time of a fully cached run

    def _begin(self) -> str:
        """Begin the run of these parameters and return its id; end the process if they are invalid."""
        if CmdlineParser.get_instance() is not None:
            install_streams()
        signals.install()
        with _exit_if_invalid():
            check_working_directory()
            only, force = ([names] if names else [] for names in (self.only, self.force))
            target = Target.parse(self.until, only, force)
            directory = Path(self.config_dir) if self.config_dir else None
            run = begin(json.loads(self.overrides), directory, target)
        _register(run, run.plan.config.cards)
        return run.id


for _stage in STAGES.values():  # `luigi … Split` is `luigi … RunGRPO --only split`
    _members = {"__doc__": _stage.summary, "__module__": __name__, "until": None, "only": _stage.name}
    globals()[_stage.task_name] = type(_stage.task_name, (RunGRPO,), _members)
