"""hydra/sweeper=grid: Hydra's grid sweep without its validation, which composes every point a second time."""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore


@dataclass
class GridSweeperConf(BasicSweeperConf):
    """The options of Hydra's basic sweeper."""

    _target_: str = "hydra_plugins.grpoflow.grid_sweeper.GridSweeper"


ConfigStore.instance().store(group="hydra/sweeper", name="grid", node=GridSweeperConf, provider="grpoflow")


class GridSweeper(BasicSweeper):
    """Basic sweeper without validation, which takes 150 ms per point; planning composes each point."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Check nothing: the sweep itself composes one point for each choice of a group."""
