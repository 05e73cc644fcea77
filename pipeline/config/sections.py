"""All sections of a run's configuration as one typed object."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from launch.config import LauncherConfig
from pipeline.config.remote import RemoteConfig
from stages.base.bounds import Positive
from stages.base.identity import NotInIdentity
from stages.sections import Sections


@dataclass(frozen=True)
class Config(Sections):
    """Configuration of a run: the sections that stages read, and store, cards, launcher and remote."""

    store: Annotated[str, NotInIdentity()]
    """Directory of the artifacts; default ./store or $GRPOFLOW_STORE."""
    cards: Positive
    """Number of workers of the grpo stage; null for as many as layout.train occupies."""
    launcher: Annotated[LauncherConfig, NotInIdentity()]
    remote: Annotated[RemoteConfig, NotInIdentity()]

    def plain(self) -> dict[str, Any]:
        """Return plain data with normalised types, which is fingerprinted and passed to stages."""
        return asdict(self)
