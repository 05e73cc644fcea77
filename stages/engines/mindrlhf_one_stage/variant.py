"""Differences of grpo_one_stage.py from mindrlhf's tutorial: its checkouts, numbers, rules, notes and memory.

Source: mindrlhf 2d0e84d (2025-03-21) to 9202c8f, before f251809 (2025-03-24) removed the script.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.base.layout import Role
from stages.base.rules import Broken, Rules
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf.contract import read
from stages.engines.mindrlhf.engine import applying_notes
from stages.engines.mindrlhf.job import MindrlhfJob
from stages.engines.mindrlhf.memory import block_cache, reshard, train
from stages.engines.mindrlhf.rules import COMMON
from stages.engines.mindrlhf_one_stage.config import CONTRACT, OneStageEngine
from stages.engines.tables import add_rules
from stages.engines.template import entries
from stages.models import memory
from stages.models.memory import RoleMemory

ENTRY = Path("examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py")
TRAINER = Path("mindrlhf/trainer/grpo_trainer.py")
TEMPLATE = Path(__file__).with_name("files.yaml")
DESCRIPTION = "a checkout of mindrlhf from 2d0e84d (2025-03-21) to before f251809 (2025-03-24)"
REWARDS = {"accuracy": 1.0, "format": 1.0}
"""The script's only rewards and their weights (grpo_one_stage.py, main)."""
_COUNTS_ROLLOUTS = re.compile(r"def make_experience\([^)]*\bnum_rollouts\b")


def recognise(home: str | None) -> str:
    """Return the contract of a checkout or, without one, the assumed one; raises ConfigError for others."""
    if home is None:
        return CONTRACT
    remedy = f"check out {CONTRACT}, or choose engine=mindrlhf"
    declared = ARGUMENT.findall(read(home, ENTRY, remedy))
    names = (path.removeprefix("arguments.") for path in entries(TEMPLATE) if path.startswith("arguments."))
    missing = [f"--{name}" for name in names if name not in declared]
    if not _COUNTS_ROLLOUTS.search(read(home, TRAINER, remedy)):
        missing.append("num_rollouts of make_experience")
    if not missing:
        return CONTRACT
    rule = f"must be {DESCRIPTION}: {', '.join(missing)} missing"
    raise ConfigError([Problem("engine.mindrlhf_home", home, rule, remedy)])


@dataclass(frozen=True)
class Job(MindrlhfJob):
    """Sections that a run is rendered from; a row of training holds one completion."""

    engine: OneStageEngine

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles with checkpoints of their own; the reference has the layout of the generation."""
        return ("train", "generate")

    @property
    def blocks(self) -> int:
        """Blocks of the generation's cache that are used at once."""
        return self.engine.chunk_size * -(-self.seq_length // self.engine.block_size)

    def steps(self, prompts: int) -> int:
        """Return the number of steps of the complete run.

        The script divides the number of prompts by the batch size of a dataset that is not batched yet: 1.
        """
        return self.engine.epochs * (prompts // self.num_rollouts)


RULES = Rules[Job]("mindrlhf_one_stage")
RULES.include(COMMON, lambda job: job)
add_rules(RULES, Path(__file__).with_name("rules.yaml"))


@RULES.row("train.final_share", "utils/utils.py, LearningRate")
def _lower_end(job: Job) -> Broken:
    """Require a share below 1."""
    if job.train.final_share < 1:
        return None
    return "must be below 1: its cosine needs a lower end", "set it to 0.0"


@RULES.row("reward.functions", "grpo_one_stage.py")
def _its_rewards(job: Job) -> Broken:
    """Require the rewards accuracy and format, each with weight 1."""
    if dict(zip(job.reward.functions, job.reward.weights, strict=False)) == REWARDS:
        return None
    rule = "must be accuracy and format, each with weight 1: no others there"
    return rule, "use reward=think, or train with another engine"


def notes(job: Job) -> Iterator[str]:
    """Return notes for the plan about behaviour that no rule forbids."""
    return applying_notes(
        job, dict.fromkeys(("steps_of_script", "saves_once", "reference", "qwen_ids"), True)
    )


def estimate(job: Job) -> tuple[RoleMemory, ...]:
    """Return train, generate, reference and reshard; raises ConfigError if a layout does not fit.

    Training takes turns with generation and its reference (grpo_one_stage.py, load and offload around train
    and transform; grpo_trainer.py, make_experience).
    """
    model, layout, engine, dtype = job.model, job.layout.generate, job.engine, job.model.param_init_type
    held = memory.elements(model, layout, "layout.generate")[0].held
    generate = (
        memory.weights(held, dtype),
        memory.sized("reference weights", held, dtype),
        block_cache(model, layout, engine.num_blocks, engine.block_size),
        memory.working_set(model, layout, engine.chunk_size * job.tokenize.max_prompt_length),
    )
    tokens = job.batch * job.seq_length  # every replica scores the complete batch
    copied = [("train", job.layout.train, dtype), ("generate", layout, dtype), ("reference", layout, dtype)]
    return (
        train(job),
        RoleMemory("generate", 0, generate),
        memory.scoring(model, layout, tokens, [held], dtype),
        reshard(model, copied),
    )
