"""Settings of engine=supervised. Defaults: conf/engine/supervised.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.identity import CheckoutDirectory
from stages.engines.config import OutsideEngine


@dataclass(frozen=True)
class SupervisedEngine(OutsideEngine):
    """Settings that section mindformers takes over by default."""

    name: Literal["supervised"]
    """supervised: supervised training alone, by mindformers."""
    mindformers_home: Annotated[str | None, CheckoutDirectory()]
    """Checkout of mindformers (mindformers.home)."""


SETTINGS = SupervisedEngine
