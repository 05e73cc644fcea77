"""Configuration of the sft stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from stages.errors import Problem
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


def check_sft(config: SftConfig, path: str = "sft") -> Iterator[Problem]:
    """Every rule between its fields that `config` breaks."""
    if config.warmup_steps > config.steps:
        rule = f"at most {path}.steps={config.steps}"
        yield Problem(f"{path}.warmup_steps", config.warmup_steps, rule, f"use at most {config.steps}")
    parts = config.micro_batch_num
    if config.batch_size % parts:
        rule = f"must be a multiple of {path}.micro_batch_num={parts}"
        yield Problem(
            f"{path}.batch_size", config.batch_size, rule, f"use {-(-config.batch_size // parts) * parts}"
        )


def check_examples(config: SftConfig, examples: int, path: str = "sft") -> Iterator[Problem]:
    """A batch must not exceed the examples that training has, without those of the check's prompts."""
    if config.batch_size > examples:
        held = f"{path}.check_prompts={config.check_prompts}"
        rule = f"must be at most the {examples} examples that {held} leaves (ours: stages/sft.py)"
        remedy = f"use at most {examples}" if examples else f"lower {path}.check_prompts, or take more rows"
        yield Problem(f"{path}.batch_size", config.batch_size, rule, remedy)
