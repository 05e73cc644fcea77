"""Rules of MindSpeed-RL: what it checks after taking the cards, ignores silently, or cannot do.

Each source is a place in Ascend/MindSpeed-RL at 05a90d7; 667a547 has the same unless the rule says otherwise.
Rules of all engines, such as heads and equal card counts, are in pipeline/config/rules.py.
"""

import math
from dataclasses import dataclass

from stages.base.layout import ROLES
from stages.base.rules import Broken, Rules, at_least, at_most, be, divide, hold, multiple_of
from stages.engines import layout_rules, upstream
from stages.engines.layout_rules import Laid
from stages.engines.mindspeed_rl import recipe
from stages.engines.mindspeed_rl.job import Job
from stages.engines.mindspeed_rl.upstream import fields
from stages.models.families import family_of
from stages.rewards.config import RewardConfig

_VALIDATE = "validate_config.py"
_EVALUATED = {"functions": ["qwen_accuracy"], "weights": [1.0]}
"""Rewards of conf/engine/mindspeed_rl.yaml."""
RULES = Rules[Job]("mindspeed_rl")


@dataclass(frozen=True)
class Placed:
    """A job on its machines."""

    job: Job
    nodes: int
    """Machines of the Ray cluster; only plan knows their number."""
    reward: RewardConfig
    """Rewards of evaluate, which training does not use."""


PLACED = Rules[Placed]("mindspeed_rl_machines")
PLACED.include(RULES, lambda placed: placed.job)
PLACED.must(
    "train.prompts_per_step",
    multiple_of(lambda placed: placed.nodes, "machines, each with a process that scores,"),
    f"{_VALIDATE}: global_batch_size",
    when=lambda placed: placed.job.engine.contract == "05a90d7" and not placed.job.reward_npus,
    value=lambda placed: placed.job.train.prompts_per_step,
)


@PLACED.row("reward.{}", "cli/train_grpo.py", each=_EVALUATED)
def _other_rewards(placed: Placed, key: str) -> Broken:
    """Require the default rewards, since MindSpeed-RL does not train on others."""
    if list(getattr(placed.reward, key)) == _EVALUATED[key]:
        return None
    rule = f"must be {_EVALUATED[key]}: MindSpeed-RL does not train on rewards of grpoflow"
    return rule, "set engine.verifier_function and engine.verifier_weight instead"


RULES.must("model.qkv_concat", be(False), "its convert_ckpt.py reads separate weights")
RULES.must(
    "model.rope_theta",
    hold(lambda job: float(job.model.rope_theta).is_integer(), "must be an integer", "choose engine=local"),
    "megatron/training/arguments.py: --rotary-base",
)
RULES.must(
    "layout.train.model_parallel",
    divide("model.vocab_size", "vocab_size"),
    "megatron/core/tensor_parallel/layers.py",
)
for _path, _required, _key in (
    ("engine.use_remove_padding", False, "remove_padding"),
    ("layout.train.opt_offload", False, "swap_optimizer"),
    ("layout.train.context_parallel", 1, "context_parallel_algo"),
):
    RULES.must(
        _path,
        be(_required, f"contract 667a547 has no {_key}, 05a90d7 does"),
        "config_cls: megatron_config.py, rl_config.py",
        when=lambda job: job.engine.contract == "667a547",
    )


@RULES.row("train.checkpoint_every", "grpo_trainer_hybrid.py, fit")
def _saves_at_the_end(job: Job) -> Broken:
    """Require a divisor of train.steps on the version that saves nothing at the end."""
    every, steps = job.train.checkpoint_every, job.train.steps
    if job.engine.contract != "667a547" or every < 1 or steps % every == 0:
        return None
    rule = f"must divide train.steps={steps} with contract 667a547, which saves nothing at the end"
    return rule, f"use {math.gcd(every, steps)}"


@RULES.row("engine.contract", "configs/checkpoint/model_cfg.json")
def _converter_of_family(job: Job) -> Broken:
    """Require a version whose converter knows the model's family."""
    converter = family_of(job.model).converter
    if converter is None or not converter.contracts or job.engine.contract in converter.contracts:
        return None
    title, known = family_of(job.model).title, " or ".join(converter.contracts)
    return f"must be {known} for {title}: other converters do not know it", f"set engine.contract={known}"


RULES.must(
    "layout.{}.expert_parallel",
    be(
        1,
        "it changes the names of Megatron's checkpoints, which export does not read",
        "raise model_parallel instead",
    ),
    "megatron/training/checkpointing.py, get_checkpoint_name",
    name="whole_experts",
    each=ROLES,
    when=lambda job, role: family_of(job.model).experts is not None,
)
RULES.must(
    "layout.generate.{}",
    be(
        1,
        "generation is tensor and data parallel only",
        "set it to 1 and raise model_parallel or data_parallel",
    ),
    f"{_VALIDATE}: pipeline_parallel for vllm",
    name="generation_is_not_cut",
    each=("pipeline_stage", "context_parallel"),
)


RULES.include(
    layout_rules.RULES,
    lambda job: Laid(job.model, {"train": job.layout.train, "generate": job.layout.generate}),
)


# Key-value heads need not divide: MindSpeed-LLM repeats them before the exchange by default (a2c0733b9,
# features_manager/context_parallel/ulysses_context_parallel.py; training/arguments.py).
@RULES.row("layout.train.context_parallel", "MindSpeed's ulysses_context_parallel.py, validate_args")
def _ulysses(job: Job) -> Broken:
    """Require that model_parallel x context_parallel divides the number of attention heads."""
    heads, cut = job.model.num_attention_heads, job.actor.context_parallel
    split = job.actor.model_parallel * cut
    if cut == 1 or heads % split == 0:
        return None
    rule = f"model_parallel x context_parallel = {split} must divide num_attention_heads={heads}"
    return rule, f"use {math.gcd(heads // job.actor.model_parallel, cut)}"


RULES.must(
    "layout.train.vocab_emb_dp",
    be(False, "Megatron always splits the vocabulary"),
    "megatron/core/tensor_parallel/layers.py",
)
RULES.must(
    "layout.train.enable_parallel_optimizer",
    be(True, "layout.train.opt_offload needs it"),
    "docs/zh/features/swap_optimizer.md",
    when=lambda job: job.actor.opt_offload,
)
RULES.must(
    "engine.seq_length",
    multiple_of(
        lambda job: job.actor.context_parallel * job.actor.model_parallel,
        why="layout.train splits a sequence into that many parts",
        remedy="leave it null",
    ),
    "MindSpeed's ulysses_context_parallel.py; megatron/core/tensor_parallel/mappings.py",
    value=lambda job: job.seq_length,
)
_SEPARATE = ("reference_npus", "reward_npus")
RULES.must(
    "engine.{}",
    be(None, "integrated workers share their cards", "set engine.use_integrated_worker=false"),
    _VALIDATE,
    name="integrated",
    each=_SEPARATE,
    when=lambda job, key: job.engine.use_integrated_worker,
)
RULES.must(
    "engine.{}",
    multiple_of(
        lambda job, key: job.cards_per_model,
        "layout.train's model_parallel x pipeline_stage x context_parallel",
    ),
    f"{_VALIDATE}, _validate_resource",
    name="whole_models",
    each=_SEPARATE,
    when=lambda job, key: getattr(job.engine, key) is not None,
    unless=("integrated",),
)


@RULES.row("engine.{}", _VALIDATE, each=("reward_npus", "reward_load"))
def _reward_model(job: Job, key: str) -> Broken:
    """Require both reward_npus and reward_load for a reward model."""
    npus, weights = job.engine.reward_npus, job.engine.reward_load
    if getattr(job.engine, key) is not None or (npus is None) == (weights is None):
        return None
    return "a reward model needs both reward_npus and reward_load", "set both, or neither"


def _replicas(job: Job) -> list[tuple[str, int]]:
    """Return name and number of the replicas of policy, reference and reward model."""
    return [
        ("layout.train.data_parallel", job.actor.data_parallel),
        *(
            (f"replicas of engine.{name}", max(1, npus // job.cards_per_model))
            for name, npus in (("reference_npus", job.reference_npus), ("reward_npus", job.reward_npus))
            if npus
        ),
    ]


@RULES.row(
    "train.prompts_per_step",
    f"{_VALIDATE}: global_batch_size",
    each=lambda job: [*_replicas(job), ("layout.generate.data_parallel", job.layout.generate.data_parallel)],
)
def _whole_replicas(job: Job, replica: tuple[str, int]) -> Broken:
    """Require a multiple of the replicas of each role."""
    prompts, (name, count) = job.train.prompts_per_step, replica
    if prompts % count == 0:
        return None
    return f"must be a multiple of {name} = {count}", f"use {-(-prompts // count) * count}"


@RULES.row("engine.micro_batch_size", _VALIDATE, each=_replicas, unless=("whole_replicas",))
def _micro_batches(job: Job, replica: tuple[str, int]) -> Broken:
    """Require a divisor of the completions of a replica."""
    (name, count), micro = replica, job.engine.micro_batch_size
    completions = job.samples // count
    if completions % micro == 0:
        return None
    rule = f"must divide the {completions} completions of a replica ({name})"
    return rule, f"use {math.gcd(completions, micro)}"


RULES.must(
    "engine.mini_batch_size",
    divide(
        "train.prompts_per_step",
        why="the last update would have fewer completions, but the same weight",
        remedy="leave it null",
    ),
    "base_training_engine.py, _split_batches",
    value=lambda job: job.mini_batch_size,
)


@RULES.row("engine.mini_batch_size", "actor_hybrid_worker.py", unless=("mini_batch_size",))
def _mini_of_micro(job: Job) -> Broken:
    """Require that the micro-batches of all replicas divide the completions of an update."""
    completions = job.mini_batch_size * job.rollout.num_generations
    batch = job.actor.data_parallel * job.engine.micro_batch_size
    if completions % batch == 0:
        return None
    rule = (
        f"its {completions} completions must be a multiple of layout.train.data_parallel x "
        f"engine.micro_batch_size = {batch}"
    )
    return rule, "leave it null, or lower engine.micro_batch_size", job.mini_batch_size


RULES.must(
    "engine.forward_micro_batch_size",
    divide(
        lambda job: job.samples // job.actor.data_parallel,
        "the {} completions of one replica",
        remedy="leave it null",
    ),
    "base_training_engine.py",
    when=lambda job: job.engine.forward_micro_batch_size is not None,
)
RULES.must(
    "engine.seq_length",
    at_least(
        lambda job: job.sample_length,
        "tokenize.max_prompt_length + rollout.max_tokens",
        remedy="leave it null, or shorten them",
    ),
    _VALIDATE,
    name="longest_sample",
    value=lambda job: job.seq_length,
)
RULES.must(
    "engine.max_model_len",
    at_least(lambda job: job.seq_length, "seq_length", remedy="leave it null"),
    f"{_VALIDATE}: Sequence length exceeds vLLM",
    value=lambda job: job.max_model_len,
)
RULES.must(
    "engine.max_num_seqs",
    at_most(lambda job: job.max_num_batched_tokens, "max_num_batched_tokens={}"),
    "vllm config.py, SchedulerConfig",
)
RULES.must(
    "engine.seq_length",
    at_most(
        "model.max_position_embeddings", remedy="shorten tokenize.max_prompt_length or rollout.max_tokens"
    ),
    "vllm config.py",
    name="positions",
    value=lambda job: max(job.seq_length, job.max_model_len),
)
RULES.include(recipe.RULES, lambda job: job)
upstream.add_rule(RULES, "engine", fields, "mindspeed_rl/config_cls")
