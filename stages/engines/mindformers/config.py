"""Settings of engine.sft=mindformers. Defaults: conf/mindformers/default.yaml."""

from dataclasses import dataclass
from typing import Annotated

from stages.base.bounds import NonNegative, Positive
from stages.base.identity import Checkout
from stages.engines.config import OutsideProgram
from stages.grpo.config import AdamConfig


@dataclass(frozen=True)
class MindformersConfig(AdamConfig, OutsideProgram):
    """mindformers' own supervised training (run_mindformer.py) under msrun, on layout.train's cards.

    What is said of this machine is the engine's, unless said otherwise.
    """

    home: Annotated[str | None, Checkout()]
    """The checkout; null: plan and --dry-run write a placeholder, run refuses."""
    epochs: Positive
    """Passes over the examples (shipped YAML: 2)."""
    batch_size: Positive
    """Examples per update, of all cards together."""
    examples_per_card: Positive
    """Examples that a replica takes at a time (shipped YAML: 1). Its share of a batch is so many of these in
    turn: gradient accumulation, or with a pipeline its micro-batches."""
    checkpoint_every: NonNegative
    """Updates between checkpoints, from which a killed run goes on; 0: one at the end."""
    keep_checkpoints: Positive
    """Checkpoints that stay, weights with both Adam moments; older ones are removed."""
    device_memory_gib: Positive
    """context.max_device_memory of a card (shipped YAML: 58, for cards of 64 GiB)."""


SETTINGS = MindformersConfig
