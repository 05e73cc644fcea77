"""Configuration of the sft stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from stages.grpo.config import NonNegative, OptimizerConfig, Positive


@dataclass(frozen=True)
class SftConfig(OptimizerConfig):
    """Supervised training on whole answers, until the model is right often enough for GRPO to start."""

    enabled: bool
    """false: grpo starts from split's weights."""
    batch_size: Positive
    """Examples per update."""
    micro_batch_num: Positive
    """Parts of a batch whose gradients are summed before an update; bounds the memory for logits."""
    stop_accuracy: Annotated[float, Gt(0), Le(1)] | None
    """Stop once the greedy accuracy on check_prompts training prompts reaches this; null: run all steps."""
    stop_checks: Positive
    """Checks in a row whose mean must reach stop_accuracy; one alone jumps too much from step to step."""
    check_every: Positive
    """Updates between checks of the greedy accuracy."""
    checkpoint_every: NonNegative
    """Updates between checkpoints, from which a killed run goes on; 0: none."""
    max_tokens: Annotated[int, Ge(2)]
    """Longest answer in checks, in tokens; rollout.max_tokens unless said otherwise."""
    check_prompts: Annotated[int, Ge(1)]
    """Prompts of each check: the last rows of the training data, which sft leaves out."""
