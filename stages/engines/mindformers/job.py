"""Configuration of a supervised run of mindformers, and numbers derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.layout import LayoutConfig
from stages.base.reader import read_part
from stages.engines.job import RunPaths
from stages.engines.mindformers.config import MindformersConfig
from stages.models.config import ModelConfig
from stages.tokenize.config import TokenizeConfig


@dataclass(frozen=True)
class Job:
    """Sections that a run is rendered from."""

    model: ModelConfig
    layout: LayoutConfig
    tokenize: TokenizeConfig
    mindformers: MindformersConfig
    seed: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Job:
        """Build the job from a stage's part of the configuration."""
        return read_part(cls, config)

    @property
    def parallel(self) -> bool:
        """True if mindformers uses several cards."""
        return self.layout.train.cards > 1

    @property
    def examples_at_once(self) -> int:
        """Examples that all replicas compute at once."""
        return self.layout.train.data_parallel * self.mindformers.examples_per_card

    @property
    def micro_batches(self) -> int:
        """Parts of a replica's share of a batch.

        Source: base_trainer.py, _check_global_batch_size_for_auto_parallel.
        """
        return max(1, self.mindformers.batch_size // self.examples_at_once)

    @property
    def seq_length(self) -> int:
        """Row length of training; records have one id more, for the shift between inputs and labels."""
        return self.tokenize.sft_length


@dataclass(frozen=True)
class Paths(RunPaths):
    """Absolute paths of a run's files."""

    dataset: Path
    """sft.mindrecord."""
    start: Path
    """Weights at the start: a complete directory, or the checkpoint from which the run resumes."""

    @property
    def config(self) -> Path:
        """The rendered YAML."""
        return self.root / "finetune.yaml"

    @property
    def output(self) -> Path:
        """The program's output_dir, which contains checkpoint/rank_N and more."""
        return self.root / "output"

    @property
    def resume(self) -> Path:
        """Directory of the checkpoint from which a run resumes."""
        return self.root / "resume"
