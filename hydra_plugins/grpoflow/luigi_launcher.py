"""hydra/launcher=luigi: all points of a sweep in one Luigi build, so that what they share runs once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

OURS = (
    "hydra/launcher=", "hydra.launcher.", "hydra/job_logging=", "hydra/hydra_logging=", "hydra.searchpath=",
    "hydra.sweep.dir=", "hydra.mode=", "hydra/sweeper=grid",
)  # fmt: skip
"""Hydra's options that say how points run; all others (a sweeper and its search space) choose points."""


@dataclass
class LuigiLauncherConf:
    """Options of the launcher: `hydra.launcher.cards=2`."""

    _target_: str = "hydra_plugins.grpoflow.luigi_launcher.LuigiLauncher"
    cards: int | None = None
    """Cards of this machine; null: as many as the largest point needs."""
    plan_only: bool = False
    """Show the merged graph and start nothing."""
    config_dir: str | None = None
    """Directory with config groups of the user's own."""
    until: str | None = None
    only: list[str] = field(default_factory=list)
    force: list[str] = field(default_factory=list)
    """What of the graph is asked for, of every point."""
    brought: list[str] = field(default_factory=list)
    """Directories of artifacts that points may take."""
    as_json: bool = False
    """Show it for programs."""


ConfigStore.instance().store(
    group="hydra/launcher", name="luigi", node=LuigiLauncherConf, provider="grpoflow"
)


class LuigiLauncher(Launcher):
    """Turns override lists into points of one sweep; a sweeper may hand over several batches."""

    def __init__(
        self,
        cards: int | None,
        plan_only: bool,
        config_dir: str | None,
        until: str | None = None,
        only: Sequence[str] = (),
        force: Sequence[str] = (),
        brought: Sequence[str] = (),
        as_json: bool = False,
    ) -> None:
        self._options, self._target = (cards, plan_only, as_json), (until, only, force)
        self._config_dir, self._brought = config_dir, brought
        self._sweep: Any = None
        self._tell: Any = None

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Called once by Hydra; what runs are Luigi's tasks, and the task function is told the points."""
        from pipeline.plan.target import Target
        from pipeline.sweep.build import Asked, Sweep

        wanted = list(OmegaConf.select(config, "hydra.overrides.task"))
        options = list(OmegaConf.select(config, "hydra.overrides.hydra"))
        # Each once: the command on a sweep's page holds what a search adds by itself, and is typed again.
        wanted += dict.fromkeys(option for option in options if not option.startswith(OURS))
        config_dir = Path(self._config_dir) if self._config_dir else None
        asked = Asked(*self._options, config_dir, Target.of(*self._target), [*map(Path, self._brought)])
        self._sweep = Sweep(wanted, asked)
        self._tell = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run a batch; a point's value is its held-out accuracy, for sweepers that search."""
        points = self._sweep.run([list(overrides) for overrides in job_overrides])
        self._tell(points)
        return [_returned(point, initial_job_idx + number) for number, point in enumerate(points)]


def _returned(point: Any, number: int) -> JobReturn:
    """What a sweeper is told; nothing where there is no result, which Optuna counts as a failed trial."""
    value = point.result.get("accuracy_grpo") if point.state == "finished" else None
    job = JobReturn(overrides=point.overrides, working_dir="", task_name=str(number))
    job.status, job.return_value = JobStatus.COMPLETED, value
    return job
