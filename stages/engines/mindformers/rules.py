"""Rules of a supervised run of mindformers; rules of every engine are in pipeline/config/rules.py."""

from stages.base.rules import Broken, Rules, at_most, be, multiple_of
from stages.engines import upstream
from stages.engines.layout_rules import MINDFORMERS, Laid, sequence_parts
from stages.engines.mindformers.job import Job
from stages.engines.mindformers.upstream import fields
from stages.models.families import Trained, family_of, head_dim, rope_scaling, trained_by
from stages.models.family import Family

RULES = Rules[Job]("mindformers")
RULES.must(
    "mindformers.batch_size",
    multiple_of(lambda job: job.examples_at_once, "data_parallel x mindformers.examples_per_card"),
    "base_trainer.py, _check_global_batch_size_for_auto_parallel",
)


@RULES.row("mindformers.batch_size", "MindSpore's cell_wrapper.py, PipelineCell", unless=("batch_size",))
def _filled(job: Job) -> Broken:
    """Require at least as many micro-batches as pipeline stages."""
    stages = job.layout.train.pipeline_stage
    if job.micro_batches >= stages:
        return None
    rule = (
        f"at least pipeline_stage={stages} micro-batches of {job.examples_at_once} examples fill the pipeline"
    )
    return rule, f"use {stages * job.examples_at_once}"


RULES.include(MINDFORMERS, lambda job: Laid(job.model, {"train": job.layout.train}))
RULES.must(
    "layout.train.vocab_emb_dp",
    be(False, "mindformers sets it so in a pipeline"),
    "core/parallel_config.py",
    when=lambda job: job.layout.train.pipeline_stage > 1,
)
RULES.must(
    "tokenize.sft_length",
    multiple_of(
        lambda job: sequence_parts(job.layout.train),
        why="rows are cut over context_parallel and use_seq_parallel's cards",
    ),
    "ours: MindSpore cuts evenly",
)
RULES.must(
    "tokenize.sft_length", at_most("model.max_position_embeddings"), "ours: trained so", name="positions"
)


def trains(family: Family) -> bool:
    """Return True if mindformers trains the network of a family."""
    return family.network is not None and not family.custom_attention


@RULES.row("engine.sft", "ours: stages/models")
def _family(job: Job) -> Broken:
    """Require a family that mindformers trains."""
    family = family_of(job.model)
    if trains(family):
        return None
    rule = f"trains {trained_by(trains)} models, no {family.title}"
    return rule, "set engine.sft=off", "mindformers"


for _rule in (head_dim, rope_scaling):
    RULES.must(
        f"model.{_rule.__name__}",
        lambda value, job, rule=_rule: rule(Trained(job.model, "mindformers")),
        "models/llama/llama_config.py",
        text=_rule.__doc__,
    )
RULES.must(
    "tokenize.compat",
    be("none", "with engine.sft=mindformers: its ids of answers are not Qwen2.5's"),
    "rlhf_data.py",
)


upstream.add_rule(RULES, "mindformers", fields, "tools/register/template.py")
