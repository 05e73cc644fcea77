"""Layouts by name: `layout=dp2_mp4_pp2` is the frame conf/layout/named.yaml with these degrees.

The source stands last in the search path (conf/config.yaml), so that a file of that name wins.
"""

import re

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

NAME = re.compile(r"layout/dp(\d+)_mp(\d+)_pp(\d+)(?:_cp(\d+))?(?:_ep(\d+))?(?:\.yaml)?")
DEGREES = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel", "expert_parallel")


class LayoutNames(ConfigSource):
    """A source of configs that holds every layout name there can be."""

    @staticmethod
    def scheme() -> str:
        """The source's part of the search path."""
        return "grpoflow"

    def load_config(self, config_path: str) -> ConfigResult:
        """The named frame, then the degrees."""
        match = NAME.fullmatch(config_path)
        assert match is not None  # Hydra asks is_config first
        degrees = zip(DEGREES, map(int, match.groups(default="1")), strict=True)
        config = OmegaConf.create({"defaults": ["named", "_self_"], "train": dict(degrees)})
        return ConfigResult(
            config=config,
            path=f"{self.scheme()}://{self.path}",
            provider=self.provider,
            header={"package": None},
        )

    def available(self) -> bool:
        """Always."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Files make the group; the names only add to it."""
        return False

    def is_config(self, config_path: str) -> bool:
        """Whether the path is a layout's name."""
        return NAME.fullmatch(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Nothing: the names are without end."""
        return []
