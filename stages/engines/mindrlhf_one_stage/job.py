"""Checkouts of grpo_one_stage.py, and configuration of its run with the numbers that follow from it.

Source: mindrlhf 2d0e84d (2025-03-21) to 9202c8f, before f251809 (2025-03-24) removed the script.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.base.layout import Role
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf.contract import read
from stages.engines.mindrlhf.job import MindrlhfJob
from stages.engines.mindrlhf_one_stage.config import CONTRACT, OneStageEngine

ENTRY = Path("examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py")
TRAINER = Path("mindrlhf/trainer/grpo_trainer.py")
DESCRIPTION = "a checkout of mindrlhf from 2d0e84d (2025-03-21) to before f251809 (2025-03-24)"
ARGUMENTS = (
    "sft_path_infer", "sft_path_train", "vocab_path", "merges_file_path", "mind_dataset_dir", "save_ckpt_dir",
    "use_parallel", "load_sft_checkpoint_infer", "load_sft_checkpoint_train", "load_ref_checkpoint",
    "enable_compile_cache", "pre_num_generations", "pre_store_data",
)  # fmt: skip
"""Arguments that are given to the script (files.py); a checkout must declare all of them."""
_COUNTS_ROLLOUTS = re.compile(r"def make_experience\([^)]*\bnum_rollouts\b")


def recognise(home: str | None) -> str:
    """Return the contract of a checkout or, without one, the assumed one; raises ConfigError for others."""
    if home is None:
        return CONTRACT
    remedy = f"check out {CONTRACT}, or choose engine=mindrlhf"
    declared = ARGUMENT.findall(read(home, ENTRY, remedy))
    missing = [f"--{name}" for name in ARGUMENTS if name not in declared]
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
