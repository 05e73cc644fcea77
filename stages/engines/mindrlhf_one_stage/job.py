"""Configuration of a run of grpo_one_stage.py, and numbers derived from it."""

from dataclasses import dataclass

from stages.base.layout import Role
from stages.engines.mindrlhf.job import MindrlhfJob
from stages.engines.mindrlhf_one_stage.config import OneStageEngine


@dataclass(frozen=True)
class Job(MindrlhfJob):
    """Sections that a run is rendered from; a row of training holds one completion."""

    engine: OneStageEngine

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles with checkpoints of their own; the reference has the layout of the generation."""
        return ("train", "generate")

    def steps(self, prompts: int) -> int:
        """Return the number of steps of the complete run.

        The script divides the number of prompts by the batch size of a dataset that is not batched yet: 1.
        """
        return self.engine.epochs * (prompts // self.num_rollouts)
