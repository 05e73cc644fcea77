"""Luigi tasks: one per stage, and RunGRPO above them. They know order and cards, no field."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import luigi
from luigi.configuration import get_config

from pipeline import signals, ui_address
from pipeline.errors import REPORTED, ConfigError
from pipeline.graph import StageSpec
from pipeline.progress import count
from pipeline.run import Run, prepare_plan

EXIT_FAILED, EXIT_INVALID = 1, 2
TELL_EVERY_S = 1.0


def _behave_without_luigi_cfg() -> None:
    """Settings that a bare `luigi --module pipeline RunGRPO` needs; a user's luigi.cfg wins."""
    defaults: dict[str, dict[str, object]] = {
        # Without luigid the default tries the network for a minute. --scheduler-host turns this off.
        "core": {"local_scheduler": "--scheduler-host" not in " ".join(sys.argv), "no_lock": True},
        # Luigi exits 0 on failure by default.
        "retcode": {
            name: EXIT_FAILED
            for name in (
                "already_running",
                "missing_data",
                "not_run",
                "task_failed",
                "scheduling_error",
                "unhandled_exception",
            )
        },
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


_runs: dict[tuple[str, str | None], Run] = {}


def adopt(overrides: str, config_dir: str | None, run: Run) -> None:
    """Let RunGRPO of these parameters be `run`, which is prepared already."""
    _runs[overrides, config_dir] = run


def adopted() -> list[Run]:
    """The runs of this process."""
    return list(_runs.values())


def prepare(overrides: str, config_dir: str | None) -> Run:
    """Compose and plan once per process and set of overrides; ends the process on invalid input."""
    if (overrides, config_dir) not in _runs:
        try:
            parsed = json.loads(overrides)
            run = Run(*prepare_plan(parsed, Path(config_dir) if config_dir else None), parsed)
        except ConfigError as error:
            for problem in error.problems:
                print(f"error: {problem}", file=sys.stderr)
            sys.exit(EXIT_INVALID)
        except REPORTED as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(EXIT_INVALID)
        adopt(overrides, config_dir, run)
    return _runs[overrides, config_dir]


class StageTask(luigi.Task):
    """One stage of one or more runs: the same fingerprint is the same task."""

    stage: str = luigi.Parameter(description="name of the stage")
    fingerprint: str = luigi.Parameter(description="identity of its artifact")

    @classmethod
    def of(cls, run: Run, spec: StageSpec) -> StageTask:
        """The task of `spec`; Luigi hands out one instance per fingerprint."""
        task = cls(stage=spec.name, fingerprint=spec.key.fingerprint)
        task._run = getattr(task, "_run", run)  # of several runs that share it, the first
        return task

    @property
    def resources(self) -> dict[str, int]:
        """Cards, of which the scheduler hands out no more than there are."""
        spec = self._run.plan.spec(self.stage)
        return {"cards": spec.workers} if spec.computes else {}

    def requires(self) -> list[StageTask]:
        """The stages whose artifacts this one reads."""
        spec = self._run.plan.spec(self.stage)
        sources = dict.fromkeys(key.stage for key in spec.inputs.values())
        return [StageTask.of(self._run, self._run.plan.spec(stage)) for stage in sources]

    def complete(self) -> bool:
        """Whether the artifact is whole."""
        return bool(self._run.is_complete(self.stage))

    def run(self) -> None:
        """Build the artifact."""
        pages = ui_address.tracking_url(self._run.store.root)
        if pages is not None:
            self.set_tracking_url(pages + self._run.id)
        self._heard = 0.0
        try:
            self._run.build(self.stage, self._tell_scheduler)
        except KeyboardInterrupt as error:
            signals.leave_fork(error)
            raise

    def _tell_scheduler(self, line: Mapping[str, Any]) -> None:
        """Progress for Luigi's own pages, at most once a second: over a network it is a request each."""
        if time.monotonic() - self._heard < TELL_EVERY_S:
            return
        self._heard = time.monotonic()
        self.set_status_message(f"{count(line)} {line.get('message', '')}".strip())
        if line.get("total"):
            self.set_progress_percentage(min(100, round(100 * line["step"] / line["total"])))


class RunGRPO(luigi.Task):
    """GRPO post-training from fetch to report.

    Examples:
        luigi --module pipeline RunGRPO
        luigi --module pipeline RunGRPO --overrides 'seed=1 train.beta=0.02'
        luigi --module pipeline RunGRPO --overrides '["layout=dp2_mp1_pp1", "store=/data/store"]'
    """

    overrides: str = OverridesParameter(
        default="[]", description="Hydra overrides: a shell-split string or a JSON list"
    )
    config_dir: str | None = luigi.OptionalParameter(
        default=None, description="directory with your own config groups"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        signals.install()
        self._prepared = prepare(self.overrides, self.config_dir)
        self._finished = False
        get_config().set("resources", "cards", str(self._prepared.plan.config.cards))

    def requires(self) -> list[StageTask]:
        """Every stage, not only the last: a whole report must not hide a damaged upstream."""
        return [StageTask.of(self._prepared, spec) for spec in self._prepared.plan.specs]

    def complete(self) -> bool:
        """False until this process has reported: a run with nothing to do still prints its result."""
        return self._finished

    def run(self) -> None:
        """Tell the result; it is the last line on stdout."""
        self._prepared.report()
        self._finished = True


__all__ = ["RunGRPO", "StageTask"]
