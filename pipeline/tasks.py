"""Luigi tasks: one per stage, and RunGRPO, which requires them. They only define order and card counts."""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import luigi
from luigi.cmdline_parser import CmdlineParser
from luigi.configuration import get_config
from luigi.rpc import RPCError

from pipeline.errors import REPORTED, Exit
from pipeline.parameters import OverridesParameter, parse_target
from pipeline.plan.graph import StageSpec
from pipeline.plan.target import ALL_STAGES, Target
from pipeline.run import signals
from pipeline.run.progress import count
from pipeline.run.run import Run, begin
from pipeline.store.store import DIGITS
from pipeline.terminal import install_streams
from stages.base.graph import Stage
from stages.catalog import STAGES

STATUS_INTERVAL_S = 1.0
OVERRIDES = "Hydra overrides: a shell-split string or a JSON list"
CONFIG_DIR = "directory with your own config groups"
UNTIL = "stop after this stage"
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
        logging.getLogger(name).addFilter(_is_unreported)


def _is_unreported(record: logging.LogRecord) -> bool:
    """Return True for errors that were not reported yet; shorten scheduler failures to one line."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, RPCError):
        record.msg = f"Luigi's scheduler stopped answering: {error}; type the same command to go on"
        record.args, record.exc_info = (), None
    return record.levelno >= logging.ERROR and not isinstance(error, REPORTED)


_set_luigi_defaults()


_runs: dict[tuple[str, str | None, Target], Run] = {}


def adopt(overrides: str, config_dir: str | None, run: Run) -> None:
    """Register a prepared run for the task with these parameters and the run's target."""
    _runs[overrides, config_dir, run.plan.target] = run
    get_config().set("resources", "cards", str(run.plan.config.cards))


def adopted() -> list[Run]:
    """Return the runs of this process."""
    return list(_runs.values())


def prepare(overrides: str, config_dir: str | None, target: Target = ALL_STAGES) -> Run:
    """Return the run with these parameters, begun if necessary; end the process on invalid input."""
    if CmdlineParser.get_instance() is not None:
        install_streams()
    if (overrides, config_dir, target) not in _runs:
        run = begin(json.loads(overrides), Path(config_dir) if config_dir else None, target)
        adopt(overrides, config_dir, run)
    return _runs[overrides, config_dir, target]


def _is_root_task(family: str) -> bool:
    """Return True if the task is the one on this process's Luigi command line, with a local scheduler."""
    parser = CmdlineParser.get_instance()
    return bool(parser and parser.known_args.root_task == family and luigi.interface.core().local_scheduler)


class StageTask(luigi.Task):
    """Task of a stage, identified by its fingerprint and shared by runs with different overrides.

    As the root task of a command line, it also builds everything upstream and reports the result at the end.
    """

    overrides: str = OverridesParameter(default="[]", significant=False, description=OVERRIDES)
    config_dir: str | None = luigi.OptionalParameter(default=None, significant=False, description=CONFIG_DIR)
    fingerprint: str = luigi.Parameter(
        default="", description="identity of its artifact; follows from the overrides"
    )
    stage: ClassVar[str]

    @classmethod
    def get_param_values(cls, params: Any, args: Any, kwargs: Any) -> Any:
        """Return the values like luigi.Task, but compute a missing fingerprint from the overrides."""
        values = dict(super().get_param_values(params, args, kwargs))
        if not values["fingerprint"]:
            run = prepare(values["overrides"], values["config_dir"], Target(only=(cls.stage,)))
            values["fingerprint"] = run.plan.spec(cls.stage).key.fingerprint[:DIGITS]
        return list(values.items())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parent: Run | None = None  # the run that requires it; None for the root task
        self._is_reported = False

    @property
    def _run(self) -> Run:
        return self._parent or prepare(self.overrides, self.config_dir, Target(only=(self.stage,)))

    def within(self, run: Run) -> StageTask:
        """Make the task a part of `run`, and return it."""
        self._parent = run
        return self

    @property
    def resources(self) -> dict[str, int]:
        """Number of cards that the stage occupies, which the scheduler limits."""
        spec = self._run.plan.spec(self.stage)
        return {"cards": spec.stage.workers} if spec.stage.computes else {}

    def requires(self) -> list[StageTask]:
        """Return the tasks of the stages whose artifacts this one reads."""
        run = self._run
        sources = dict.fromkeys(key.stage for key in run.plan.spec(self.stage).inputs.values())
        return [task(run, run.plan.spec(stage), self.overrides, self.config_dir) for stage in sources]

    def complete(self) -> bool:
        """Return True if the artifact is complete, or, for the root task, if the result was reported."""
        return self._is_reported if self._parent is None else self._parent.is_complete(self.stage)

    def run(self) -> None:
        """Build the artifact."""
        self._last_status = 0.0
        try:
            signals.end_with_parent()
            self._run.build(self.stage, self._send_status)
        except KeyboardInterrupt as error:
            signals.leave_fork(error)
            raise
        if self._parent is None:
            self._run.report()
            self._is_reported = True

    def _send_status(self, line: Mapping[str, Any]) -> None:
        """Send progress to Luigi's scheduler, at most once a second, since each update is a request."""
        if time.monotonic() - self._last_status < STATUS_INTERVAL_S:
            return
        self._last_status = time.monotonic()
        self.set_status_message(f"{count(line)} {line.get('message', '')}".strip())
        if line.get("total"):
            self.set_progress_percentage(min(100, round(100 * line["step"] / line["total"])))


def _task_class(stage: Stage) -> type[StageTask]:
    """Create the Luigi task of a stage; defining the class registers it under its name."""
    members = {"__doc__": stage.summary, "__module__": __name__, "stage": stage.name}
    return type(stage.task_name, (StageTask,), members)


TASKS = {name: _task_class(stage) for name, stage in STAGES.items()}
"""Stage name -> Luigi task class."""


globals().update({task_class.__name__: task_class for task_class in TASKS.values()})


def task(run: Run, spec: StageSpec, overrides: str, config_dir: str | None) -> StageTask:
    """Return the task of a stage of a run."""
    digits = spec.key.fingerprint[:DIGITS]
    stage_task: StageTask = TASKS[spec.name](overrides=overrides, config_dir=config_dir, fingerprint=digits)
    return stage_task.within(run)


class RunGRPO(luigi.Task):
    """GRPO post-training from fetch to report.

    Examples:
        luigi --module pipeline RunGRPO
        luigi --module pipeline RunGRPO --overrides 'seed=1 train.beta=0.02'
        luigi --module pipeline RunGRPO --overrides '["layout=dp2_mp1_pp1", "store=/data/store"]'
        luigi --module pipeline RunGRPO --until split                     (stop after split)
        luigi --module pipeline Split --overrides 'layout=dp2_mp1_pp1'    (split and everything upstream)
    """

    overrides: str = OverridesParameter(default="[]", description=OVERRIDES)
    config_dir: str | None = luigi.OptionalParameter(default=None, description=CONFIG_DIR)
    until: str | None = luigi.OptionalParameter(default=None, description=UNTIL)
    only: str | None = luigi.OptionalParameter(default=None, description=ONLY)
    force: str | None = luigi.OptionalParameter(default=None, description=FORCE)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        target = parse_target(self.until, self.only, self.force)
        self._prepared = prepare(self.overrides, self.config_dir, target)
        self._is_reported = False
        if _is_root_task(self.task_family) and self._prepared.is_done():
            self.run()
            gc.freeze()  # saves a garbage collection at the interpreter's end
            sys.exit(Exit.DONE)  # setting up a Luigi worker would double the time of a fully cached run

    def requires(self) -> list[StageTask]:
        """Return the tasks of all requested stages, so that a complete report hides no damage upstream."""
        run = self._prepared
        return [task(run, spec, self.overrides, self.config_dir) for spec in run.plan.requested]

    def complete(self) -> bool:
        """Return True once this process has reported the result, which fully cached runs do, too."""
        return self._is_reported

    def run(self) -> None:
        """Report the result; the result line is the last line on stdout."""
        self._prepared.report()
        self._is_reported = True
