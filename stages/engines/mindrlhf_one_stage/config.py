"""Settings of engine=mindrlhf_one_stage. Defaults: conf/engine/mindrlhf_one_stage.yaml."""

from dataclasses import dataclass
from typing import Literal

from stages.base.bounds import Positive
from stages.engines.mindrlhf.config import MindrlhfSettings

Window = Literal["32599d0", "875f92b", "2d0e84d"]
WINDOWS: tuple[Window, ...] = ("2d0e84d", "875f92b", "32599d0")
"""Commits of mindspore-ai/mindrlhf (2025-03-21, 02-27, 02-21) that changed grpo_one_stage.py's interface.
The first is assumed without a checkout."""


@dataclass(frozen=True)
class OneStageEngine(MindrlhfSettings):
    """mindrlhf's grpo_one_stage.py under msrun: reads two checkpoints, writes one."""

    name: Literal["mindrlhf_one_stage"]
    """mindrlhf_one_stage: a checkout of mindspore-ai/mindrlhf from 32599d0 to before f251809."""
    contract: Literal["auto", "32599d0", "875f92b", "2d0e84d"]
    """Version of arguments and behaviour; auto: recognised from the checkout's files."""
    num_blocks: Positive
    """Blocks of the generation's cache (shipped YAML: 1024)."""


SETTINGS = OneStageEngine
