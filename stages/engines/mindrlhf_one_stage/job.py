"""Configuration of a run of grpo_one_stage.py, and numbers derived from it."""

from dataclasses import dataclass
from pathlib import Path

from stages.base.layout import Role
from stages.engines.job import RunPaths, padded_row_length
from stages.engines.mindrlhf.job import MindrlhfJob
from stages.engines.mindrlhf_one_stage.config import OneStageEngine, Window

ROLES: tuple[Role, ...] = ("train", "generate")
"""Roles with checkpoints of their own; the reference has the layout of the generation."""


@dataclass(frozen=True)
class Job(MindrlhfJob):
    """Sections that a run is rendered from; a row of training holds one completion."""

    engine: OneStageEngine

    @property
    def window(self) -> Window:
        """The contract, which is resolved before a stage runs."""
        assert self.engine.contract != "auto"
        return self.engine.contract

    @property
    def num_rollouts(self) -> int:
        """Batches of prompts per step; before 2d0e84d always one, whatever the script's dataclass says."""
        return super().num_rollouts if self.window == "2d0e84d" else 1

    @property
    def seq_length(self) -> int:
        """Row length of training."""
        return self.engine.seq_length or padded_row_length(self.sample_length)

    def steps(self, prompts: int) -> int:
        """Return the number of steps of the complete run.

        The script divides the number of prompts by the batch size of a dataset that is not batched yet: 1.
        """
        return self.engine.epochs * (prompts // self.num_rollouts)


@dataclass(frozen=True)
class Paths(RunPaths):
    """Absolute paths of a run's files."""

    dataset: Path
    """train.mindrecord."""
    tokenizer: Path
    """Directory with vocab.json and merges.txt."""
    weights: Path
    """Directory with train/rank_N and generate/rank_N, of .ckpt files."""
