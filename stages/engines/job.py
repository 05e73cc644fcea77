"""Configuration and file locations of a run that an external program computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stages.base.context import Context
from stages.base.layout import LayoutConfig
from stages.base.reader import part, read_part
from stages.catalog import RESULT
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.models.config import ModelConfig
from stages.tokenize.config import TokenizeConfig
from stages.tokenizer import special_ids

if TYPE_CHECKING:
    from stages.sections import Sections

J = TypeVar("J", bound="Job")
TEST_DATA = "test.mindrecord"
"""File of tokenize with the rows that evaluate reads."""


def tokenize_files(name: str) -> tuple[str, ...]:
    """Return the files that stages/engines/training_rows.py writes; `name` has the training rows."""
    return (RESULT, TEST_DATA, f"{TEST_DATA}.db", name)


def padded_row_length(length: int) -> int:
    """Round up to a multiple of 128, which every usual model_parallel and context_parallel divides."""
    return -(-length // 128) * 128


@dataclass(frozen=True)
class Job:
    """Sections that every engine's files are rendered from."""

    model: ModelConfig
    layout: LayoutConfig
    tokenize: TokenizeConfig
    seed: int

    @classmethod
    def from_config(cls: type[J], config: Mapping[str, Any]) -> J:
        """Build the job from a stage's part of the configuration."""
        return read_part(cls, config)

    @classmethod
    def from_run(cls: type[J], run: Sections) -> J:
        """Build the job from a run's configuration."""
        return part(cls, run)


@dataclass(frozen=True)
class GrpoJob(Job):
    """Sections that every engine's GRPO is rendered from; each engine adds its `engine` section."""

    rollout: RolloutConfig
    train: TrainConfig

    @property
    def sample_length(self) -> int:
        """Tokens of the longest sample: prompt and completion."""
        return self.tokenize.max_prompt_length + self.rollout.max_tokens

    @property
    def samples(self) -> int:
        """Completions of one step."""
        return self.train.prompts_per_step * self.rollout.num_generations


@dataclass(frozen=True)
class RunPaths:
    """Absolute paths of a run's files."""

    root: Path
    """Work directory of the run; survives a kill."""

    @property
    def configs(self) -> Path:
        """Directory of the rendered files."""
        return self.root / "configs"

    @property
    def checkpoints(self) -> Path:
        """Directory in which the program saves checkpoints."""
        return self.root / "checkpoints"


def load_job(cls: type[J], context: Context) -> J:
    """Build a stage's job; a builtin model gets the token ids of the tokenizer that was trained for it."""
    job = cls.from_config(context.config)
    if job.model.source == "builtin":
        ids = special_ids(context.inputs["fetch"], job.model)
        changes: dict[str, Any] = {"eos_token_id": tuple(ids.eos), "pad_token_id": ids.pad}
        changes["bos_token_id"] = ids.pad if ids.bos is None else ids.bos
        job = dataclasses.replace(job, model=dataclasses.replace(job.model, **changes))
    return job
