"""One supervised run of mindformers as its settings, and the numbers that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.errors import Problem
from stages.base.layout import LayoutConfig, RoleLayout
from stages.base.reader import read
from stages.engines.mindformers.config import MindformersConfig
from stages.engines.mindrlhf.layout_rules import model_layout
from stages.models.config import ModelConfig
from stages.models.families import family_of, trained_by
from stages.tokenize.config import TokenizeConfig


@dataclass(frozen=True)
class Job:
    """The sections that a run is rendered from."""

    model: ModelConfig
    layout: RoleLayout
    """layout.train's."""
    tokenize: TokenizeConfig
    settings: MindformersConfig
    seed: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Job:
        """From a stage's part of the configuration."""
        return cls(
            model=read(ModelConfig, config["model"], "model"),
            layout=read(LayoutConfig, config["layout"], "layout").train,
            tokenize=read(TokenizeConfig, config["tokenize"], "tokenize"),
            settings=read(MindformersConfig, config["mindformers"], "mindformers"),
            seed=int(config["seed"]),
        )

    @property
    def parallel(self) -> bool:
        """Whether mindformers is told to use several cards."""
        return self.layout.cards > 1

    @property
    def micro_batches(self) -> int:
        """Parts of a replica's share of a batch.

        mindformers counts them up to the batch again (base_trainer.py,
        _check_global_batch_size_for_auto_parallel).
        """
        return max(
            1, self.settings.batch_size // (self.layout.data_parallel * self.settings.examples_per_card)
        )

    @property
    def seq_length(self) -> int:
        """Row length of training: records hold one id more, for the shift between inputs and labels."""
        return self.tokenize.sft_length


def check(job: Job) -> list[Problem]:
    """Every rule that a run breaks; those of layouts, of all engines, stand in pipeline/config/rules.py."""
    return list(_problems(job))


def _problems(job: Job) -> Iterator[Problem]:
    settings, layout = job.settings, job.layout
    together = layout.data_parallel * settings.examples_per_card
    if settings.batch_size % together:
        yield Problem(
            "mindformers.batch_size",
            settings.batch_size,
            f"must be a multiple of data_parallel x mindformers.examples_per_card = {together} "
            "(base_trainer.py, _check_global_batch_size_for_auto_parallel)",
            f"use {-(-settings.batch_size // together) * together}",
        )
    elif job.micro_batches < layout.pipeline_stage:
        yield Problem(
            "mindformers.batch_size",
            settings.batch_size,
            f"at least pipeline_stage={layout.pipeline_stage} micro-batches of {together} examples fill the "
            "pipeline (MindSpore's cell_wrapper.py, PipelineCell)",
            f"use {layout.pipeline_stage * together}",
        )
    yield from model_layout(job.model, layout, "train")
    if layout.vocab_emb_dp and layout.pipeline_stage > 1:
        rule = "must be false with a pipeline: mindformers sets it so (core/parallel_config.py)"
        yield Problem("layout.train.vocab_emb_dp", True, rule, "set it to false")
    cut = layout.context_parallel * (layout.model_parallel if layout.use_seq_parallel else 1)
    if job.seq_length % cut:
        yield Problem(
            "tokenize.sft_length",
            job.seq_length,
            f"must be a multiple of {cut}: rows are cut over context_parallel and use_seq_parallel's cards "
            "(ours: MindSpore cuts evenly)",
            f"use {max(1, job.seq_length // cut) * cut}",
        )
    if job.seq_length > job.model.max_position_embeddings:
        positions = job.model.max_position_embeddings
        rule = f"must be at most model.max_position_embeddings={positions} (ours: trained so)"
        yield Problem("tokenize.sft_length", job.seq_length, rule, f"use {positions}")
    family = family_of(job.model)
    if "mindformers" not in family.engines:
        rule = f"trains {trained_by('mindformers')} models, no {family.title} (ours: stages/models)"
        yield Problem("engine.sft", "mindformers", rule, "set engine.sft=off")
    if job.tokenize.compat == "mindrlhf":
        rule = "must be none with engine.sft=mindformers: rlhf_data.py's ids of answers are not Qwen2.5's"
        yield Problem("tokenize.compat", "mindrlhf", rule, "set it to none")


@dataclass(frozen=True)
class Places:
    """Where a run's files lie; all absolute."""

    root: Path
    """The run's own directory: survives a kill."""
    dataset: Path
    """sft.mindrecord."""
    start: Path
    """What training starts from: a flat complete directory, or what `resume` found."""

    @property
    def config(self) -> Path:
        """The rendered YAML."""
        return self.root / "finetune.yaml"

    @property
    def output(self) -> Path:
        """Its output_dir: checkpoint/rank_N and more."""
        return self.root / "output"

    @property
    def aside(self) -> Path:
        """Where the checkpoint lies that a run goes on from."""
        return self.root / "resume"
