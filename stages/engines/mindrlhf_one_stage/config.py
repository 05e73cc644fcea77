"""Settings of engine=mindrlhf_one_stage. Defaults: conf/engine/mindrlhf_one_stage.yaml."""

from dataclasses import dataclass
from typing import Annotated, Literal

from stages.base.bounds import Positive
from stages.base.identity import Checkout
from stages.engines.config import OutsideEngine

Window = Literal["32599d0", "875f92b", "2d0e84d"]
WINDOWS: tuple[Window, ...] = ("2d0e84d", "875f92b", "32599d0")
"""Commits of mindspore-ai/mindrlhf (2025-03-21, 02-27, 02-21) that changed grpo_one_stage.py's interface.
The first is assumed without a checkout."""


@dataclass(frozen=True)
class OneStageEngine(OutsideEngine):
    """mindrlhf's grpo_one_stage.py under msrun: reads two checkpoints, writes one."""

    name: Literal["mindrlhf_one_stage"]
    """mindrlhf_one_stage: a checkout of mindspore-ai/mindrlhf from 32599d0 to before f251809."""
    mindrlhf_home: Annotated[str | None, Checkout()]
    """The checkout; null: plan and --dry-run assume contract 2d0e84d, run refuses."""
    mindformers_home: Annotated[str | None, Checkout()]
    """Checkout of mindformers for PYTHONPATH; null: the interpreter's own mindformers."""
    contract: Literal["auto", "32599d0", "875f92b", "2d0e84d"]
    """Version of arguments and behaviour; auto: recognised from the checkout's files."""
    epochs: Positive
    """Outer loops, each of as many steps as there are prompts (over num_rollouts since 2d0e84d): the script
    mistakes the number of prompts for that of batches."""
    chunk_size: Positive
    """Prompts per generation replica and batch (mindrlhf's last default 1)."""
    batch_size: Positive
    """Samples per card and micro-batch of an update (mindrlhf's last default 1)."""
    seq_length: Positive | None
    """Row length of training; null: prompt + completion, rounded up to a multiple of 128."""
    block_size: Positive
    """Tokens per block of the generation's cache (shipped YAML: 32)."""
    num_blocks: Positive
    """Blocks of that cache (shipped YAML: 1024)."""
    device_memory_gib: Positive
    """context.max_device_memory of a card (shipped YAML: 58, for cards of 64 GiB)."""


SETTINGS = OneStageEngine
