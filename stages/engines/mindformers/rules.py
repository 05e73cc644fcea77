"""Rules of a supervised run of mindformers; rules of every engine are in pipeline/config/rules.py."""

from pathlib import Path

from stages.base.rules import Broken, Rules
from stages.engines import upstream
from stages.engines.layout_rules import MINDFORMERS, Laid
from stages.engines.mindformers.finetune_yaml import fields
from stages.engines.mindformers.job import Job
from stages.engines.tables import add_rules
from stages.models.families import Trained, family_of, head_dim, rope_scaling, trained_by
from stages.models.family import Family

RULES = Rules[Job]("mindformers")
add_rules(RULES, Path(__file__).with_name("rules.yaml"))
RULES.include(MINDFORMERS, lambda job: Laid(job.model, {"train": job.layout.train}))
upstream.add_rule(RULES, "mindformers", fields, "tools/register/template.py")


@RULES.row("mindformers.batch_size", "MindSpore's cell_wrapper.py, PipelineCell", unless=("batch_size",))
def _filled(job: Job) -> Broken:
    """Require at least as many micro-batches as pipeline stages."""
    stages, examples = job.layout.train.pipeline_stage, job.examples_at_once
    if job.micro_batches >= stages:
        return None
    rule = f"at least pipeline_stage={stages} micro-batches of {examples} examples fill the pipeline"
    return rule, f"use {stages * examples}"


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
