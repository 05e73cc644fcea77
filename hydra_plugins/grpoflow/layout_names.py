"""Layouts by name: `layout=dp2_mp4_pp2` is conf/layout/named.yaml with these degrees.

The source is last in the search path (conf/config.yaml), so a file of the same name takes precedence.
"""

import re

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

NAME = re.compile(r"layout/dp(\d+)_mp(\d+)_pp(\d+)(?:_cp(\d+))?(?:_ep(\d+))?(?:\.yaml)?")
DEGREES = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel", "expert_parallel")


class LayoutNames(ConfigSource):
    """Config source that contains every valid layout name."""

    @staticmethod
    def scheme() -> str:
        """Return the scheme of the source's URL in the search path."""
        return "grpoflow"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return conf/layout/named.yaml with the degrees of the name."""
        match = NAME.fullmatch(config_path)
        assert match is not None  # Hydra calls is_config first
        degrees = zip(DEGREES, map(int, match.groups(default="1")), strict=True)
        config = OmegaConf.create({"defaults": ["named", "_self_"], "train": dict(degrees)})
        return ConfigResult(
            config=config,
            path=f"{self.scheme()}://{self.path}",
            provider=self.provider,
            header={"package": None},
        )

    def available(self) -> bool:
        """Return True."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Return False: the files of conf/layout make the group, and the names add choices to it."""
        return False

    def is_config(self, config_path: str) -> bool:
        """Return True if the path is a layout name."""
        return NAME.fullmatch(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return an empty list, because the number of layout names is unlimited."""
        return []
