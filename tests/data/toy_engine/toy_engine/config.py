"""Settings of engine=toy."""

from dataclasses import dataclass
from typing import Literal

from stages.base.bounds import Positive
from stages.engines.config import OutsideEngine


@dataclass(frozen=True)
class ToyEngine(OutsideEngine):
    """Settings of engine=toy."""

    name: Literal["toy"]
    steps: Positive
