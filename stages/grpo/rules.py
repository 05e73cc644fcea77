"""What the embedded trainer refuses: plan asks it of a configuration, the stages of what they are handed."""

from __future__ import annotations

from collections.abc import Iterator

from stages.errors import Problem
from stages.grpo.config import TrainConfig
from stages.layout import ROLES, LayoutConfig, Role
from stages.weights.config import SplitConfig


def check_layout(layout: LayoutConfig, train: TrainConfig) -> Iterator[Problem]:
    """Degrees other than data_parallel and model_parallel, sharded optimizer state, and prompts left over."""
    for role in ROLES:
        of_role = layout.role(role)
        for key in ("pipeline_stage", "context_parallel", "expert_parallel"):
            if getattr(of_role, key) > 1:
                yield Problem(
                    f"layout.{role}.{key}",
                    getattr(of_role, key),
                    "engine=local is data_parallel x model_parallel only (ours: stages/grpo/parallel.py)",
                    "use a layout with pp1 and without cp and ep",
                )
        if of_role.enable_parallel_optimizer:
            yield Problem(
                f"layout.{role}.enable_parallel_optimizer",
                True,
                "engine=local keeps each shard whole (ours: stages/grpo/optimizer.py)",
                "set it to false",
            )
        if of_role.cards != layout.train.cards:
            yield Problem(
                f"layout.{role}",
                of_role.name,
                f"must occupy {layout.train.cards} cards as train does (ours: stages/grpo/trainer.py)",
                "leave its degrees null",
            )
        yield from _shares(layout, role, train.prompts_per_step)


def _shares(layout: LayoutConfig, role: Role, prompts: int) -> Iterator[Problem]:
    """Each replica takes as many prompts as the others, in micro-batches of equally many."""
    of_role = layout.role(role)
    parts, told = of_role.data_parallel, f"layout.{role}.data_parallel"
    if role != "generate":  # which samples all its prompts at once
        parts, told = parts * of_role.micro_batch_num, f"{told} x micro_batch_num"
    if prompts % parts:
        yield Problem(
            "train.prompts_per_step",
            prompts,
            f"must be a multiple of {told}={parts} (ours: stages/grpo/rollout.py, buckets.py)",
            f"use {-(-prompts // parts) * parts}",
        )


def check_split(split: SplitConfig, train: TrainConfig, sft: bool) -> Iterator[Problem]:
    """Rank files that the trainer can't read, or that it would look for in vain.

    Args:
        split: what split writes.
        train: whether there is a reference.
        sft: whether the sft stage makes grpo's weights of split's.
    """
    if split.format != "safetensors":
        rule = "engine=local reads safetensors (ours: stages/weights/tensors.py)"
        yield Problem("split.format", split.format, rule, "set it to safetensors")
    wanted: set[Role] = {"train"}
    if not sft and train.beta > 0:
        wanted.add("reference")
    missing = [role for role in ROLES if role in wanted and role not in split.roles]
    if missing:
        reader = "sft" if sft else "grpo"
        rule = f"lacks {', '.join(missing)}, which {reader} reads (ours: stages/{reader})"
        yield Problem("split.roles", list(split.roles), rule, "set it to null")


def check_rows(train: TrainConfig, rows: int) -> Iterator[Problem]:
    """Prompts held out for validation must leave a step's to train on; `rows`: of the training data."""
    left = rows - train.validation_prompts
    if train.validate_every and left < train.prompts_per_step:
        most = rows - train.prompts_per_step
        yield Problem(
            "train.validation_prompts",
            train.validation_prompts,
            f"leaves {max(0, left)} of {rows} prompts, fewer than train.prompts_per_step="
            f"{train.prompts_per_step} (ours: stages/grpo/stage.py)",
            f"use at most {most}" if most > 0 else "take more rows, or set train.validate_every=0",
        )


def check_resumed(train: TrainConfig, step: int) -> Iterator[Problem]:
    """A checkpoint of another run to go on from must leave something to train; `step`: its own."""
    if step >= train.steps:
        rule = f"is of step {step}: train.steps={train.steps} leaves nothing to train"
        remedy = f"set train.steps to more than {step}, or name an earlier one"
        yield Problem("train.resume_from", train.resume_from, rule, remedy)
