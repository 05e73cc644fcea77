"""hydra/sweeper=grid and hydra/launcher=luigi: all points of a sweep in one Luigi build."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher


@dataclass
class GridSweeperConf(BasicSweeperConf):
    """The options of Hydra's basic sweeper."""

    _target_: str = "hydra_plugins.grpoflow.sweep.GridSweeper"


@dataclass
class LuigiLauncherConf:
    """The launcher has no options: those of the command are in `SweepOptions`."""

    _target_: str = "hydra_plugins.grpoflow.sweep.LuigiLauncher"


_store = ConfigStore.instance().store
_store(group="hydra/sweeper", name="grid", node=GridSweeperConf, provider="grpoflow")
_store(group="hydra/launcher", name="luigi", node=LuigiLauncherConf, provider="grpoflow")


class GridSweeper(BasicSweeper):
    """Basic sweeper without validation, which takes 150 ms per point; planning composes each point."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Check nothing: the sweep itself composes one point for each choice of a group."""


class LuigiLauncher(Launcher):
    """Launcher that gives override lists to the task function, which is `Sweep.run`."""

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """Store the task function; called once by Hydra."""
        self._run = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run a batch; return each point with its held-out accuracy, which sweepers that search maximise."""
        points = self._run([list(overrides) for overrides in job_overrides])
        return [_job_return(point, initial_job_idx + number) for number, point in enumerate(points)]


def _job_return(point: Any, number: int) -> JobReturn:
    """Return a point's result for the sweeper; without an accuracy Optuna counts the trial as failed."""
    value = point.result.get("accuracy_grpo") if point.state == "finished" else None
    job = JobReturn(overrides=point.overrides, working_dir="", task_name=str(number))
    job.status, job.return_value = JobStatus.COMPLETED, value
    return job
