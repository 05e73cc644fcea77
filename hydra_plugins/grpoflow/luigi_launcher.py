"""hydra/launcher=luigi: all points of a sweep in one Luigi build, so that shared stages run once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

RUN_OPTIONS = (
    "hydra/launcher=", "hydra.launcher.", "hydra/job_logging=", "hydra/hydra_logging=", "hydra.searchpath=",
    "hydra.sweep.dir=", "hydra.mode=", "hydra/sweeper=grid",
)  # fmt: skip
"""Prefixes of Hydra options that decide how points run; others (sweeper, search space) choose points."""


@dataclass
class LuigiLauncherConf:
    """Options of the launcher: `hydra.launcher.cards=2`."""

    _target_: str = "hydra_plugins.grpoflow.luigi_launcher.LuigiLauncher"
    cards: int | None = None
    """Number of cards of this machine; null for as many as the largest point needs."""
    plan_only: bool = False
    """Print the merged graph and start nothing."""
    config_dir: str | None = None
    """Directory with the user's config groups."""
    until: str | None = None
    only: list[str] = field(default_factory=list)
    force: list[str] = field(default_factory=list)
    """Stages of every point that are rebuilt; with `until` and `only` the requested part of the graph."""
    as_json: bool = False
    """Print the merged graph as JSON."""


ConfigStore.instance().store(
    group="hydra/launcher", name="luigi", node=LuigiLauncherConf, provider="grpoflow"
)


class LuigiLauncher(Launcher):
    """Launcher that makes override lists the points of one sweep; a sweeper may pass several batches."""

    def __init__(
        self,
        cards: int | None,
        plan_only: bool,
        config_dir: str | None,
        until: str | None = None,
        only: Sequence[str] = (),
        force: Sequence[str] = (),
        as_json: bool = False,
    ) -> None:
        self._options, self._target = (cards, plan_only, as_json), (until, only, force)
        self._config_dir = config_dir
        self._sweep: Any = None
        self._report: Any = None

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Create the sweep; called once by Hydra.

        Luigi's tasks do the work; `task_function` is called with the finished points.
        """
        from pipeline.plan.target import Target
        from pipeline.sweep.build import Sweep, SweepOptions

        overrides = list(OmegaConf.select(config, "hydra.overrides.task"))
        hydra_options = list(OmegaConf.select(config, "hydra.overrides.hydra"))
        # Without repetitions: a command copied from a sweep's page has the options that a search adds.
        overrides += dict.fromkeys(option for option in hydra_options if not option.startswith(RUN_OPTIONS))
        config_dir = Path(self._config_dir) if self._config_dir else None
        options = SweepOptions(*self._options, config_dir, Target.of(*self._target))
        self._sweep = Sweep(overrides, options)
        self._report = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run a batch; return each point with its held-out accuracy, which sweepers that search maximise."""
        points = self._sweep.run([list(overrides) for overrides in job_overrides])
        self._report(points)
        return [_job_return(point, initial_job_idx + number) for number, point in enumerate(points)]


def _job_return(point: Any, number: int) -> JobReturn:
    """Return a point's result for the sweeper; without an accuracy Optuna counts the trial as failed."""
    value = point.result.get("accuracy_grpo") if point.state == "finished" else None
    job = JobReturn(overrides=point.overrides, working_dir="", task_name=str(number))
    job.status, job.return_value = JobStatus.COMPLETED, value
    return job
