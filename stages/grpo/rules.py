"""Rules of training, sft and evaluate.

plan checks them for a configuration, the stages for their inputs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.base.errors import Problem
from stages.base.layout import ROLES, Role
from stages.base.rules import Broken, Rules, at_least, at_most, be, hold, indices, multiple_of, once
from stages.grpo.config import EvaluateConfig, SftConfig, TrainConfig

if TYPE_CHECKING:
    from stages.grpo.trainer import Job
    from stages.sections import Sections

    Training = Sections | Job
    """A run, or the trainer's job."""


@dataclass(frozen=True)
class PromptCount:
    """Number of prompts for grpo."""

    train: TrainConfig
    rows: int
    """Training prompts, those for validation included."""


@dataclass(frozen=True)
class ExampleCount:
    """Number of examples for sft."""

    sft: SftConfig
    rows: int
    """Examples that sft.check_prompts leaves for training."""


TRAIN: Rules[Training] = Rules("train", "ours: stages/grpo/trainer.py")
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

EXAMPLES = Rules[ExampleCount]("sft_examples")


@EXAMPLES.row("sft.batch_size", "ours: stages/grpo/sft.py")
def _examples(examples: ExampleCount) -> Broken:
    """Require that the examples for training fill a batch."""
    config, rows = examples.sft, examples.rows
    if config.batch_size <= rows:
        return None
    rule = f"must be at most the {rows} examples that sft.check_prompts={config.check_prompts} leaves"
    return rule, f"use at most {rows}" if rows else "lower sft.check_prompts, or take more rows"


PROMPTS = Rules[PromptCount]("held_out", "ours: stages/grpo/stage.py")
PROMPTS.must("train.prompts_per_step", at_most(lambda prompts: prompts.rows, "the training prompts"))


@PROMPTS.row("train.validation_prompts", unless=("prompts_per_step",))
def _prompts(prompts: PromptCount) -> Broken:
    """Require that the prompts that validation leaves fill a step."""
    train, rows = prompts.train, prompts.rows
    left, most = rows - train.validation_prompts, rows - train.prompts_per_step
    if not train.validate_every or left >= train.prompts_per_step:
        return None
    rule = (
        f"leaves {max(0, left)} of {rows} prompts, fewer than train.prompts_per_step={train.prompts_per_step}"
    )
    remedy = f"use at most {most}" if most > 0 else "take more rows, or set train.validate_every=0"
    return rule, remedy


TRAINER: Rules[Training] = Rules("trainer")
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


def _loaded_roles(run: Training) -> Sequence[Role]:
    """Return the roles whose models are loaded; with train.beta=0 there is no reference."""
    return ROLES if run.train.beta > 0 else ("train", "generate")


@TRAINER.row("layout.{}", "ours: stages/grpo/trainer.py", each=_loaded_roles)
def _cards(run: Training, role: Role) -> Broken:
    """Require that each role occupies as many cards as train."""
    cards, layout = run.layout.train.cards, run.layout.role(role)
    if layout.cards == cards:
        return None
    return f"must occupy {cards} cards as train does", "leave its degrees null", layout.name


@TRAINER.row("train.prompts_per_step", "ours: stages/grpo/rollout.py, batch.py", each=_loaded_roles)
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
    elif train.beta > 0 and not train.ref_model_sync_steps and _has_reference(state):
        rule = "has a reference that moved: with train.ref_model_sync_steps=0 it would not be used"
        yield Problem("train.resume_from", train.resume_from, rule, "set train.ref_model_sync_steps")
    elif step >= train.steps:
        rule = f"is of step {step}: train.steps={train.steps} leaves nothing to train"
        remedy = f"set train.steps to more than {step}, or name an earlier one"
        yield Problem("train.resume_from", train.resume_from, rule, remedy)


def _has_reference(state: Mapping[str, Any]) -> bool:
    """Return True if a checkpoint's state.json lists the weights of a reference."""
    return any(name.startswith("reference/") for name in state.get("files", ()))
