"""Rules of a supervised run of mindformers; rules of every engine are in pipeline/config/rules.py.

Sources without a package are files of mindformers 1.6.0.
"""

from collections.abc import Iterator

from stages.base.checks import at_most, equal, multiple_of
from stages.base.errors import Problem
from stages.engines.layout_rules import mindformers_layout_problems
from stages.engines.mindformers.job import Job
from stages.models.families import family_of, trained_by
from stages.models.family import Family


def trains(family: Family) -> bool:
    """Return True if mindformers trains the network of a family."""
    return family.network is not None and not family.custom_attention


def problems(job: Job) -> Iterator[Problem]:
    """Yield what mindformers refuses or gets silently wrong."""
    yield from _model(job)
    yield from mindformers_layout_problems(job.model, {"train": job.layout.train})
    yield from _layout(job)
    yield from _batches(job)
    yield from _lengths(job)


def _model(job: Job) -> Iterator[Problem]:
    """Yield the problems of a family or attention that mindformers cannot train."""
    model, family = job.model, family_of(job.model)
    if not trains(family):
        rule = f"trains {trained_by(trains)} models, no {family.title}"
        yield Problem("engine.sft", "mindformers", rule, "set engine.sft=off", "ours: stages/models")
        return
    source = "models/llama/llama_config.py"
    if model.head_size * model.num_attention_heads != model.hidden_size:
        usual = model.hidden_size // model.num_attention_heads
        rule = f"must be hidden_size / num_attention_heads={usual}: mindformers knows no other size"
        yield Problem("model.head_dim", model.head_dim, rule, "choose engine=local", source)
    if model.rope_scaling is not None:
        shown = f"{{factor: {model.rope_scaling.factor:g}, …}}"
        rule = "must be null: mindformers does not scale rotary positions in training"
        yield Problem("model.rope_scaling", shown, rule, "choose engine=local", source)


def _layout(job: Job) -> Iterator[Problem]:
    """Yield the problems of a pipeline."""
    if job.is_piped:
        yield from equal(
            "layout.train.vocab_emb_dp",
            job.layout.train.vocab_emb_dp,
            False,
            "mindformers sets it so in a pipeline",
            "core/parallel_config.py",
        )


def _batches(job: Job) -> Iterator[Problem]:
    """Yield the problems of a batch that cards or pipeline stages do not share equally."""
    path, examples, at_once = "mindformers.batch_size", job.mindformers.batch_size, job.examples_at_once
    stages = job.layout.train.pipeline_stage
    if examples % at_once != 0:
        label = "data_parallel x mindformers.examples_per_card x mindformers.micro_batch_interleave_num"
        source = "base_trainer.py, _check_global_batch_size_for_auto_parallel"
        yield from multiple_of(path, examples, at_once, label, "", source)
    elif job.micro_batches < stages:
        rule = f"at least pipeline_stage={stages} micro-batches of {at_once} examples fill the pipeline"
        source = "MindSpore's cell_wrapper.py, PipelineCell"
        yield Problem(path, examples, rule, f"use {stages * at_once}", source)


def _lengths(job: Job) -> Iterator[Problem]:
    """Yield the problems of rows, and of ids that mindformers reads differently."""
    path, length = "tokenize.sft_length", job.tokenize.sft_length
    why = "rows are cut over context_parallel and use_seq_parallel's cards"
    yield from multiple_of(path, length, job.sequence_parts, "{}", why, "ours: MindSpore cuts evenly")
    most = job.model.max_position_embeddings
    yield from at_most(path, length, most, "model.max_position_embeddings", "", "ours: trained so")
    why = "with engine.sft=mindformers: its ids of answers are not Qwen2.5's"
    if job.tokenize.compat == "mindrlhf":
        yield from equal("tokenize.compat", job.tokenize.compat, "none", why, "rlhf_data.py")
