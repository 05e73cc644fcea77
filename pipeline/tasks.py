"""Luigi tasks: one family per stage, and RunGRPO above them. They know order and cards, no field."""

from __future__ import annotations

import gc
import json
import logging
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import luigi
from luigi.cmdline_parser import CmdlineParser
from luigi.configuration import get_config

from pipeline.errors import REPORTED, Exit
from pipeline.plan.graph import StageSpec
from pipeline.plan.target import WHOLE, Target
from pipeline.run import signals
from pipeline.run.progress import count
from pipeline.run.run import Run, begin
from pipeline.store.store import DIGITS

TELL_EVERY_S = 1.0
OVERRIDES = "Hydra overrides: a shell-split string or a JSON list"
CONFIG_DIR = "directory with your own config groups"
UNTIL = "stop after this stage: what comes before it in the graph's order is built too"
ONLY = "build these stages (with commas between) and what they read, and nothing else"
FORCE = "build these stages anew although they are in the store; what reads them follows"
RETURN_CODES = (
    "already_running", "missing_data", "not_run", "task_failed", "scheduling_error", "unhandled_exception",
)  # fmt: skip


def _behave_without_luigi_cfg() -> None:
    """Settings that a bare `luigi --module pipeline RunGRPO` needs; a user's luigi.cfg wins."""
    defaults: dict[str, dict[str, object]] = {
        # Without luigid the default tries the network for a minute. --scheduler-host turns this off.
        "core": {"local_scheduler": "--scheduler-host" not in " ".join(sys.argv), "no_lock": True},
        # Luigi exits 0 on failure by default.
        "retcode": dict.fromkeys(RETURN_CODES, int(Exit.FAILED)),  # as text: Python 3.10 writes Exit.FAILED
        # A stage that writes nothing must not succeed.
        "worker": {"check_complete_on_run": True},
    }
    config = get_config()
    for section, values in defaults.items():
        for key, value in values.items():
            if not config.has_option(section, key):
                config.set(section, key, str(value).lower() if isinstance(value, bool) else str(value))
    for name in ("luigi", "luigi-interface"):
        logging.getLogger(name).addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Luigi's narration and what we have told ourselves are silent; errors that nobody foresaw are not."""
    error = record.exc_info[1] if record.exc_info else None
    return record.levelno >= logging.ERROR and not isinstance(error, REPORTED)


_behave_without_luigi_cfg()


class OverridesParameter(luigi.Parameter):
    """Hydra overrides as one value: a shell-split string, or a JSON list.

    The value is a canonical JSON list, since Luigi compares parameters with == and shows them as text.
    """

    def parse(self, text: str) -> str:
        """Canonical JSON of `text`."""
        stripped = text.strip()
        if stripped.startswith("["):
            parsed = json.loads(stripped)
            if not all(isinstance(item, str) for item in parsed):
                raise ValueError(f"--overrides={text}: a JSON list must hold text only")
            return json.dumps(parsed)
        return json.dumps(shlex.split(stripped))


_runs: dict[tuple[str, str | None, Target], Run] = {}


def adopt(overrides: str, config_dir: str | None, run: Run) -> None:
    """Let the task of these parameters, and of the run's target, be `run`, which is prepared already."""
    _runs[overrides, config_dir, run.plan.target] = run
    get_config().set("resources", "cards", str(run.plan.config.cards))


def adopted() -> list[Run]:
    """The runs of this process."""
    return list(_runs.values())


def prepare(overrides: str, config_dir: str | None, target: Target = WHOLE) -> Run:
    """Begin once per process and parameters; ends the process on invalid input."""
    if (overrides, config_dir, target) not in _runs:
        run = begin(json.loads(overrides), Path(config_dir) if config_dir else None, target)
        adopt(overrides, config_dir, run)
    return _runs[overrides, config_dir, target]


def _is_typed(family: str) -> bool:
    """Whether this process is a command line that names the task, and has a scheduler of its own."""
    typed = CmdlineParser.get_instance()
    return bool(typed and typed.known_args.root_task == family and luigi.interface.core().local_scheduler)


class StageTask(luigi.Task):
    """One stage of one or more runs: the same fingerprint is the same task, whatever the overrides.

    Named on the command line, it builds the stage with all that it needs, and tells the result at its end.
    """

    overrides: str = OverridesParameter(default="[]", significant=False, description=OVERRIDES)
    config_dir: str | None = luigi.OptionalParameter(default=None, significant=False, description=CONFIG_DIR)
    fingerprint: str = luigi.Parameter(
        default="", description="identity of its artifact; follows from the overrides"
    )
    stage: ClassVar[str]

    @classmethod
    def get_param_values(cls, params: Any, args: Any, kwargs: Any) -> Any:
        """Luigi's, with the fingerprint that follows from the overrides where none is given."""
        values = dict(super().get_param_values(params, args, kwargs))
        if not values["fingerprint"]:
            run = prepare(values["overrides"], values["config_dir"], Target(only=(cls.stage,)))
            values["fingerprint"] = run.plan.spec(cls.stage).key.fingerprint[:DIGITS]
        return list(values.items())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._of: Run | None = None  # whose graph it is a part of
        self._told = False

    @property
    def _run(self) -> Run:
        return self._of or prepare(self.overrides, self.config_dir, Target(only=(self.stage,)))

    def within(self, run: Run) -> StageTask:
        """Itself, as a part of the graph of `run`."""
        self._of = run
        return self

    @property
    def resources(self) -> dict[str, int]:
        """Cards, of which the scheduler hands out no more than there are."""
        spec = self._run.plan.spec(self.stage)
        return {"cards": spec.workers} if spec.computes else {}

    def requires(self) -> list[StageTask]:
        """The stages whose artifacts this one reads."""
        run = self._run
        sources = dict.fromkeys(key.stage for key in run.plan.spec(self.stage).inputs.values())
        return [task(run, run.plan.spec(stage), self.overrides, self.config_dir) for stage in sources]

    def complete(self) -> bool:
        """Whether the artifact is whole; of a task named on the command line, whether the result is told."""
        return self._told if self._of is None else self._of.is_complete(self.stage)

    def run(self) -> None:
        """Build the artifact."""
        from pipeline.store import ui_address  # here: a run with nothing to do has no page

        pages = ui_address.tracking_url(self._run.store.root)
        if pages is not None:
            self.set_tracking_url(pages + self._run.id)
        self._heard = 0.0
        try:
            self._run.build(self.stage, self._tell_scheduler)
        except KeyboardInterrupt as error:
            signals.leave_fork(error)
            raise
        if self._of is None:
            self._run.report()
            self._told = True

    def _tell_scheduler(self, line: Mapping[str, Any]) -> None:
        """Progress for Luigi's own pages, at most once a second: over a network it is a request each."""
        if time.monotonic() - self._heard < TELL_EVERY_S:
            return
        self._heard = time.monotonic()
        self.set_status_message(f"{count(line)} {line.get('message', '')}".strip())
        if line.get("total"):
            self.set_progress_percentage(min(100, round(100 * line["step"] / line["total"])))


class Fetch(StageTask):
    """The model: configuration, tokenizer and weights, from a hub, a directory, or made here."""

    stage = "fetch"


class FetchDataset(StageTask):
    """Questions with checkable answers, from a hub, an address, a directory, or made here."""

    stage = "fetch_dataset"


class Convert(StageTask):
    """The weights under the engine's names and in its format."""

    stage = "convert"


class Tokenize(StageTask):
    """MindRecord files of prompts, or what the engine's own preparation writes."""

    stage = "tokenize"


class Strategy(StageTask):
    """MindSpore's strategy files of each role's layout, without a fine-tune."""

    stage = "strategy"


class Split(StageTask):
    """Rank directories of the weights, cut as each role's layout says."""

    stage = "split"


class Sft(StageTask):
    """Supervised training before GRPO."""

    stage = "sft"


class Grpo(StageTask):
    """GRPO's policy with its metrics and checkpoints."""

    stage = "grpo"


class Evaluate(StageTask):
    """Held-out accuracy before and after GRPO."""

    stage = "evaluate"


class Export(StageTask):
    """The trained model as a Hugging Face directory."""

    stage = "export"


class Report(StageTask):
    """The report's page."""

    stage = "report"


STAGES = {task.stage: task for task in StageTask.__subclasses__()}


def task(run: Run, spec: StageSpec, overrides: str, config_dir: str | None) -> StageTask:
    """The task of one stage of a run."""
    digits = spec.key.fingerprint[:DIGITS]
    part: StageTask = STAGES[spec.name](overrides=overrides, config_dir=config_dir, fingerprint=digits)
    return part.within(run)


class RunGRPO(luigi.Task):
    """GRPO post-training from fetch to report.

    Examples:
        luigi --module pipeline RunGRPO
        luigi --module pipeline RunGRPO --overrides 'seed=1 train.beta=0.02'
        luigi --module pipeline RunGRPO --overrides '["layout=dp2_mp1_pp1", "store=/data/store"]'
        luigi --module pipeline RunGRPO --until split                     (and go on later, perhaps elsewhere)
        luigi --module pipeline Split --overrides 'layout=dp2_mp1_pp1'    (split, and what it needs)
    """

    overrides: str = OverridesParameter(default="[]", description=OVERRIDES)
    config_dir: str | None = luigi.OptionalParameter(default=None, description=CONFIG_DIR)
    until: str | None = luigi.OptionalParameter(default=None, description=UNTIL)
    only: str = luigi.Parameter(default="", description=ONLY)
    force: str = luigi.Parameter(default="", description=FORCE)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        target = Target.of(self.until, [self.only], [self.force])
        self._prepared = prepare(self.overrides, self.config_dir, target)
        self._told = False
        if _is_typed(self.task_family) and self._prepared.is_done():
            self.run()
            gc.freeze()  # else the interpreter looks through all that was imported before it ends
            sys.exit(Exit.DONE)  # nothing is left to a worker, and to set one up takes as long as the rest

    def requires(self) -> list[StageTask]:
        """Every stage, not only the last: a whole report must not hide a damaged upstream."""
        run = self._prepared
        return [task(run, spec, self.overrides, self.config_dir) for spec in run.plan.asked]

    def complete(self) -> bool:
        """False until this process has told the result: a run with nothing to do tells it, too."""
        return self._told

    def run(self) -> None:
        """Tell the result; it is the last line on stdout."""
        self._prepared.report()
        self._told = True
