"""What mindrlhf, mindformers and MindSpore ask of layouts; places as in stages/engines/mindrlhf/rules.py."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stages.base.errors import Problem
from stages.base.layout import ROLES, Role, RoleLayout
from stages.engines.mindrlhf.job import Job
from stages.models.config import ModelConfig
from stages.models.families import family_of


def check(job: Job) -> Iterator[Problem]:
    """What mindrlhf, mindformers and MindSpore refuse of the three layouts."""
    if job.layout.generate.pipeline_stage > 1:
        yield Problem(
            "layout.generate.pipeline_stage",
            job.layout.generate.pipeline_stage,
            "generation must not be pipelined (infer_worker.py, reshard_optimizer.py)",
            "set it to 1 and raise model_parallel or data_parallel",
        )
    if job.layout.train.opt_offload:
        yield Problem(
            "layout.train.opt_offload",
            True,
            "must be false: the optimizer of this setting wants the norm of the gradients besides "
            "(mindrlhf/utils/adam.py:161), which the training cell does not give it (mindformers "
            "wrapper/wrapper.py:281; at 0cd087455 mindrlhf/wrapper/wrapper.py, enable_offload)",
            "set it to false; between updates mindrlhf moves the optimizer to the host anyhow",
        )
    yield from filled_pipeline(job.layout.train)
    yield from _resharding(job)
    for role in ROLES:
        layout = job.layout.role(role)
        yield from model_layout(job.model, layout, role)
        yield from cut_sequence(job.seq_length, layout, role)


def _resharding(job: Job) -> Iterator[Problem]:
    """What the numbering of the generation's cards takes for granted; pipeline_stage=1 is asked for above."""
    if not job.engine.enable_reshard_optimizer:
        return
    train, generate = job.layout.train, job.layout.generate
    remedy = "or set engine.enable_reshard_optimizer=false"
    if train.model_parallel % generate.model_parallel:
        yield Problem(
            "layout.generate.model_parallel",
            generate.model_parallel,
            f"must divide layout.train.model_parallel={train.model_parallel} with "
            "engine.enable_reshard_optimizer=true (reshard_optimizer.py, source tp and destination tp)",
            f"use {math.gcd(train.model_parallel, generate.model_parallel)}, {remedy}",
        )
    if train.context_parallel != generate.context_parallel:
        yield Problem(
            "layout.generate.context_parallel",
            generate.context_parallel,
            f"must be layout.train.context_parallel={train.context_parallel} with "
            "engine.enable_reshard_optimizer=true, which counts cards without it "
            "(reshard_optimizer.py, world_size)",
            f"use {train.context_parallel}, {remedy}",
        )


def filled_pipeline(layout: RoleLayout) -> Iterator[Problem]:
    """What a trained layout must have."""
    if layout.micro_batch_num < layout.pipeline_stage:
        yield Problem(
            "layout.train.micro_batch_num",
            layout.micro_batch_num,
            f"at least pipeline_stage={layout.pipeline_stage} micro-batches fill the pipeline "
            "(MindSpore's cell_wrapper.py, PipelineCell)",
            f"set it to {layout.pipeline_stage} or null",
        )


def cut_sequence(seq_length: int, layout: RoleLayout, role: Role) -> Iterator[Problem]:
    """What a role's layout asks of a row's length."""
    # no Ulysses part: mindrlhf's parallel_config has no key for it, and replaces the model file's own
    parts = layout.context_parallel * (layout.model_parallel if layout.use_seq_parallel else 1)
    if seq_length % parts:
        yield Problem(
            "engine.seq_length",
            seq_length,
            f"must be a multiple of {parts}, the parts that layout.{role} cuts a sequence into "
            "(ours: MindSpore cuts evenly)",
            "leave it null",
        )


def model_layout(model: ModelConfig, layout: RoleLayout, role: Role) -> Iterator[Problem]:
    """What mindformers and MindSpore refuse of a role's layout."""
    path, degree = f"layout.{role}.expert_parallel", layout.expert_parallel
    family, cards = family_of(model), layout.data_parallel * layout.model_parallel
    if family.num_experts is None:
        if degree > 1:
            yield Problem(path, degree, f"{family.title} has no experts (ours: stages/models)", "set it to 1")
    else:
        experts = family.num_experts(model)
        if cards % degree:
            rule = f"must divide data_parallel x model_parallel = {cards} (mindformers moev3.py, FFN)"
            yield Problem(path, degree, rule, f"use {math.gcd(cards, degree)}")
        if experts % degree:
            rule = f"must divide the {experts} experts (mindformers moev3.py, FFN; moe.py, check_moe_config)"
            yield Problem(path, degree, rule, f"use {math.gcd(experts, degree)}")
    if model.tie_word_embeddings and layout.context_parallel > 1 and not layout.vocab_emb_dp:
        yield Problem(
            f"layout.{role}.context_parallel",
            layout.context_parallel,
            "MindSpore refuses tied embeddings with context_parallel>1 (ours: its front end was asked)",
            f"set layout.{role}.vocab_emb_dp=true",
        )
