"""Stages accept every configuration that plan accepts, whichever keys are changed.

Stages before training run completely. Of training, the checks and the functions that divide its work run. For
outside engines, all files and scripts are written, and the rules of their stages are checked again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given, note

from pipeline.config import rules
from pipeline.config.compose import compose
from pipeline.config.composed import Composed
from pipeline.config.load import derive
from pipeline.errors import ConfigError
from pipeline.plan.checks import check
from pipeline.plan.graph import plan
from pipeline.run import program
from pipeline.store.store import Store
from stages.__main__ import entry
from stages.base.errors import StageError
from stages.base.files import file_digest
from stages.base.reader import read
from stages.catalog import STAGES
from stages.engines.mindformers import rules as mindformers
from stages.engines.mindrlhf import rules as mindrlhf
from stages.engines.mindrlhf_one_stage import rules as one_stage
from stages.engines.mindspeed_rl import rules as mindspeed_rl
from stages.grpo.batch import Batch
from stages.grpo.config import SftConfig
from stages.grpo.data import Vocabulary, read_examples, read_prompts
from stages.grpo.parallel import Mesh
from stages.grpo.rules import example_problems, sft_problems
from stages.grpo.stage import hold_out, read_job
from stages.models.config import ModelConfig
from stages.plan_checks import Planned, problems
from tests.pipeline.plans import changed, leaves
from tests.pipeline.stage_digests import make_context

TINY = (
    "model.hidden_size=16", "model.intermediate_size=32", "model.vocab_size=288",
    "dataset.train_rows=48", "dataset.test_rows=8",
    "tokenize.max_prompt_length=64", "tokenize.seq_length=64", "tokenize.sft_length=96",
    "sft.batch_size=8", "sft.check_prompts=8", "sft.steps=4", "sft.warmup_steps=2",
    "train.prompts_per_step=4", "train.steps=4", "train.warmup_steps=2", "train.validation_prompts=8",
    "evaluate.sample_prompts=4",
)  # fmt: skip
BEFORE_TRAINING = [*takewhile(lambda name: name != "sft", STAGES)]
OUTSIDE = {
    "mindrlhf": ("engine=mindrlhf",),
    "mindformers": ("engine=mindrlhf", "engine.sft=mindformers", "mindformers.batch_size=8"),
    "one_stage": ("engine=mindrlhf_one_stage", "train.prompts_per_step=2"),
    "mindspeed_rl": (
        "engine=mindspeed_rl", "layout=dp1_mp2_pp1", "engine.micro_batch_size=1", "rollout.max_tokens=64",
        "train.warmup_steps=0",  # its schedule counts completions against a horizon of prompts
        "train.checkpoint_every=2",  # it saves nothing at the end
    ),
}  # fmt: skip
STAGE_RULES = {
    "mindformers": mindformers, "mindrlhf": mindrlhf, "mindrlhf_one_stage": one_stage,
    "mindspeed_rl_grpo": mindspeed_rl,
}  # fmt: skip
refused: Counter[bool] = Counter()


def accepted(values, store):
    """Return the plan, or None if it is refused; count both."""
    try:
        config = derive(read(Composed, values))
        problems = rules.check(config)
        if problems:
            raise ConfigError(problems)
        planned = plan(config, file_digest)
        check(planned, Store(store))
    except ConfigError:
        planned = None
    refused[planned is None] += 1
    return planned


def run(planned, root):
    """Run every stage of engine=local as far as possible without training."""
    for spec in planned.specs:
        context = make_context(spec, root)
        if spec.stage.program is not None:  # sft by mindformers: later stages need its weights
            return
        if spec.name in BEFORE_TRAINING:
            entry(spec.name)(context)
            if spec.name == "tokenize" and too_few(planned, context.output):
                return
        elif spec.name == "sft":
            begin_sft(context)
        elif spec.name == "grpo":
            begin_grpo(context, spec.stage.workers)


def too_few(planned, tokenized):
    """Return True if plan refuses the number of rows that tokenize made."""
    known = Planned(planned.config, {"tokenize": tokenized}, {"sft", "grpo"}, file_digest)
    return any(problems(known))


def begin_sft(context):
    """Run the checks of sft, and look up its weights."""
    config, model = context.section(SftConfig, "sft"), context.section(ModelConfig, "model")
    vocabulary = Vocabulary.read(context.inputs["fetch"], model)
    prompts = read_prompts(context.inputs["tokenize"] / "train.mindrecord", vocabulary)
    checked = prompts.take(range(max(0, len(prompts) - config.check_prompts), len(prompts)))
    examples = read_examples(context.inputs["tokenize"] / "sft.mindrecord").without(checked)
    problems = [*sft_problems(config), *example_problems(config, len(examples))]
    if problems:
        raise ConfigError(problems)
    assert (context.inputs["split"] / "train" / "rank_0" / "model.safetensors").is_file()


def begin_grpo(context, workers):
    """Run the checks of grpo, divide a step among workers, and look up their weights."""
    job = read_job(context, workers)
    vocabulary = Vocabulary.read(context.inputs["fetch"], job.model)
    prompts = read_prompts(context.inputs["tokenize"] / "train.mindrecord", vocabulary)
    training, _ = hold_out(prompts, job.train)
    P, G, T = job.train.prompts_per_step, job.rollout.num_generations, job.rollout.max_tokens
    batch = Batch(training.ids[:P], training.lengths[:P], np.zeros((P, G, T), np.int32))
    roles = ["train", *(["reference"] if job.train.beta > 0 else [])]
    for rank in range(workers):
        mesh = Mesh.from_layout(job.layout.train, rank)
        assert len(batch.micro_batches(mesh, job.layout.train.micro_batch_num)) > 0
        for role in roles if "sft" not in str(context.inputs["weights"]) else ():  # sft writes all roles
            assert (job.weights / role / f"rank_{rank}" / "model.safetensors").is_file(), (role, rank)


def stage_problems(engine, config):
    """Return the problems for which an outside engine's stage refuses to start."""
    module = STAGE_RULES.get(engine)
    if module is None:
        return []
    job = module.Job.from_config(config)
    return list(module.problems(job))


def try_changes(base, attempt, least):
    """Try a configuration, which is accepted, and changed copies, of which at least a share is accepted."""
    refused.clear()
    attempt(dict(base))
    assert refused[True] == 0

    @given(changed(base))
    def changes(values):
        attempt(values)

    changes()
    assert refused[False] > sum(refused.values()) * least


@pytest.mark.hypothesis
@pytest.mark.parametrize("engine", OUTSIDE)
def test_what_plan_accepts_outside_engines_accept(engine, tmp_path_factory):
    def render(values):
        root = tmp_path_factory.mktemp("outside")
        planned = accepted(values, root)
        if planned is None:
            return
        outside = [spec for spec in planned.specs if spec.stage.program is not None]
        scripts, _ = program.write_files(planned, Store(root))
        assert outside and len(scripts) >= len(outside)
        for spec in outside:
            read_there = json.loads(json.dumps(spec.config))  # as a stage's process reads it
            assert stage_problems(spec.stage.program.name, read_there) == [], spec.name

    try_changes(compose((*TINY, *OUTSIDE[engine])), render, 1 / 8)


@pytest.mark.hypothesis
@pytest.mark.slow
def test_what_plan_accepts_the_stages_accept(tmp_path_factory):
    def examine(values):
        root = tmp_path_factory.mktemp("accepted")
        planned = accepted(values, root / "store")
        try:
            if planned is not None:
                run(planned, root)
        except StageError as error:
            note(str(error))
            if not re.search("no row is left|rows are unusable", str(error)):  # which only a tokenizer tells
                raise

    try_changes(compose(("engine=local", *TINY)), examine, 1 / 4)


def test_every_key_is_tried():
    keys = {str(leaf) for leaf in leaves(compose(("engine=local", *TINY)))}
    assert {"split.format", "model.eos_token_id", "sft.warmup_steps", "layout.train.micro_batch_num"} <= keys
    assert len(keys) > 150
