"""Rules of training, sft and evaluate.

plan checks them for a configuration, the stages for their inputs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stages.base.errors import Problem
from stages.base.layout import ROLES, LayoutConfig, Role
from stages.base.rules import Broken, Rules, at_least, at_most, be, hold, indices, multiple_of, once
from stages.grpo.config import EvaluateConfig, RolloutConfig, SftConfig, TrainConfig


class Training(Protocol):
    """A run, or the trainer's job."""

    @property
    def layout(self) -> LayoutConfig:
        """Layouts of the train, generate and reference roles."""

    @property
    def rollout(self) -> RolloutConfig:
        """Sampling settings of completions."""

    @property
    def train(self) -> TrainConfig:
        """GRPO."""


@dataclass(frozen=True)
class Held:
    """Training data whose last rows are held out for checks."""

    section: TrainConfig | SftConfig
    rows: int
    """Before any is held out (train), or what is left (sft)."""


TRAIN = Rules[Training]("train", "ours: stages/grpo/trainer.py")
"""Whatever the engine."""
TRAIN.must(
    "train.warmup_steps",
    at_most(lambda run: run.train.updates, "train.steps x train.num_iterations"),
    "ours: stages/grpo/optimizer.py",
)
TRAIN.must(
    "train.validation_prompts",
    at_least(1, why="train.validate_every is not 0", remedy="set it to 64"),
    when=lambda run: run.train.validate_every > 0,
)
TRAIN.must(
    "train.{}",
    hold(
        lambda run, key: run.train.validate_every or not getattr(run.train, key),
        "needs checks on held-out prompts",
        "set train.validate_every",
    ),
    name="checks",
    each=("keep_best", "patience"),
)
TRAIN.must("train.loggers[{}]", once("train.loggers"), each=indices("train.loggers"))


@TRAIN.row("train.loggers[{}]", "ours: stages/grpo/trackers", each=indices("train.loggers"))
def _installed_logger(run: Training, index: int) -> Broken:
    """Require that the tracker's package is installed."""
    logger = run.train.loggers[index]
    if importlib.util.find_spec(logger) is not None:
        return None
    extra = "mlflow" if logger == "mlflow" else "loggers"
    return f"needs the package {logger}", f"pip install 'grpoflow[{extra}]'"


TRAIN.must(
    "train.{}",
    hold(
        lambda run, key: run.train.beta > 0 or not getattr(run.train, key),
        "needs a reference, which train.beta=0 leaves out",
        "set train.beta above 0",
    ),
    name="reference",
    each=("ref_model_sync_steps", "max_kl"),
)
TRAIN.must("rollout.min_tokens", at_most("rollout.max_tokens"), "ours: stages/grpo/sampling.py")

EVALUATE = Rules[EvaluateConfig]("evaluate")
EVALUATE.must(
    "evaluate.k",
    at_most("evaluate.num_samples", why="pass@k is estimated from these"),
    "arXiv:2107.03374, eq. 1",
    when=lambda config: config.sample_prompts > 0,
)

SFT = Rules[SftConfig]("sft", "ours: stages/grpo/sft.py")
SFT.must("sft.warmup_steps", at_most("sft.steps"))
SFT.must("sft.batch_size", multiple_of("sft.micro_batch_num"))

EXAMPLES = Rules[Held]("sft_examples")


@EXAMPLES.row("sft.batch_size", "ours: stages/grpo/sft.py")
def _examples(held: Held) -> Broken:
    """Require that the examples for training fill a batch."""
    config, examples = held.section, held.rows
    assert isinstance(config, SftConfig)
    if config.batch_size <= examples:
        return None
    rule = f"must be at most the {examples} examples that sft.check_prompts={config.check_prompts} leaves"
    remedy = f"use at most {examples}" if examples else "lower sft.check_prompts, or take more rows"
    return rule, remedy, config.batch_size


PROMPTS = Rules[Held]("held_out")


@PROMPTS.row("train.validation_prompts", "ours: stages/grpo/stage.py")
def _prompts(held: Held) -> Broken:
    """Require that the prompts for training fill a step."""
    train, rows = held.section, held.rows
    assert isinstance(train, TrainConfig)
    left, most = rows - train.validation_prompts, rows - train.prompts_per_step
    if not train.validate_every or left >= train.prompts_per_step:
        return None
    rule = (
        f"leaves {max(0, left)} of {rows} prompts, fewer than train.prompts_per_step={train.prompts_per_step}"
    )
    remedy = f"use at most {most}" if most > 0 else "take more rows, or set train.validate_every=0"
    return rule, remedy, train.validation_prompts


TRAINER = Rules[Training]("trainer")
"""Rules of engine=local's grpo."""
TRAINER.must("train.lora_rank", be(0, "engine=local trains all weights"), "ours: stages/grpo/model.py")
TRAINER.must(
    "layout.{}",
    be(1, "engine=local is data_parallel x model_parallel only", "use a layout with dp and mp only"),
    "ours: stages/grpo/parallel.py",
    name="two_degrees",
    each=[
        f"{role}.{key}" for role in ROLES for key in ("pipeline_stage", "context_parallel", "expert_parallel")
    ],
)
TRAINER.must(
    "layout.{}.enable_parallel_optimizer",
    be(False, "engine=local keeps each shard whole"),
    "ours: stages/grpo/optimizer.py",
    each=ROLES,
)


@TRAINER.row("layout.{}", "ours: stages/grpo/trainer.py", each=ROLES)
def _cards(run: Training, role: Role) -> Broken:
    """Require that each role occupies as many cards as train."""
    cards, layout = run.layout.train.cards, run.layout.role(role)
    if layout.cards == cards:
        return None
    return f"must occupy {cards} cards as train does", "leave its degrees null", layout.name


@TRAINER.row("train.prompts_per_step", "ours: stages/grpo/rollout.py, batch.py", each=ROLES)
def _shares(run: Training, role: Role) -> Broken:
    """Check that prompts divide evenly over replicas and micro-batches."""
    layout, prompts = run.layout.role(role), run.train.prompts_per_step
    parts, key = layout.data_parallel, f"layout.{role}.data_parallel"
    if role != "generate":  # which samples all its prompts at once
        parts, key = parts * layout.micro_batch_num, f"{key} x micro_batch_num"
    if prompts % parts == 0:
        return None
    return f"must be a multiple of {key}={parts}", f"use {-(-prompts // parts) * parts}"


def check_resumed(train: TrainConfig, state: Mapping[str, Any]) -> Iterator[Problem]:
    """Check by its state.json that a checkpoint of another run is grpo's, with steps left to train."""
    step = int(state["step"])
    if "position" not in state:
        rule = "is no checkpoint of a grpo stage: its state.json has no position in the prompts"
        yield Problem("train.resume_from", train.resume_from, rule, "name a checkpoint that grpo wrote")
    elif step >= train.steps:
        rule = f"is of step {step}: train.steps={train.steps} leaves nothing to train"
        remedy = f"set train.steps to more than {step}, or name an earlier one"
        yield Problem("train.resume_from", train.resume_from, rule, remedy)
