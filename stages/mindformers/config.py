"""Settings of engine.sft=mindformers. Defaults: conf/mindformers/default.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from stages.grpo.config import AdamConfig, NonNegative, Positive

LOCATIONS = ("home", "python", "env_scripts", "env", "container", "silence_timeout_s")
"""Fields that say where and how it runs on this machine; they are no part of an artifact's identity."""


@dataclass(frozen=True)
class MindformersConfig(AdamConfig):
    """mindformers' own supervised training (run_mindformer.py) under msrun, on layout.train's cards."""

    home: str | None
    """The checkout; null: plan and --dry-run write a placeholder, run refuses. engine.mindformers_home unless
    said otherwise."""
    python: str | None
    """Interpreter with mindspore; null: the first python on PATH that is not grpoflow's. As the engine's."""
    env_scripts: tuple[str, ...]
    """Shell files sourced before the start, in the child only: CANN's set_env.sh. As the engine's."""
    env: Mapping[str, str]
    """Variables added to its environment."""
    container: tuple[str, ...]
    """Command prefix that runs the start script elsewhere; empty: none. As the engine's."""
    silence_timeout_s: Annotated[float, Gt(0)] | None
    """A run whose workers write no line for so many seconds is stopped as hung; null: never."""
    epochs: Positive
    """Passes over the examples (shipped YAML: 2)."""
    batch_size: Positive
    """Examples per update, of all cards together."""
    micro_batch_num: Positive
    """Parts of a batch whose gradients are summed before an update; with a pipeline
    layout.train.micro_batch_num counts instead."""
    checkpoint_every: NonNegative
    """Updates between checkpoints, from which a killed run goes on; 0: one at the end."""
    keep_checkpoints: Annotated[int, Ge(1)]
    """Checkpoints that stay, weights with both Adam moments; older ones are removed."""
    device_memory_gib: Annotated[int, Ge(1)]
    """context.max_device_memory of a card (shipped YAML: 58, for cards of 64 GiB)."""
