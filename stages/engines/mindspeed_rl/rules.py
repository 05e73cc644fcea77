"""Rules of MindSpeed-RL: what it checks after taking the cards, ignores silently, or cannot do.

Each source is a place in Ascend/MindSpeed-RL at 05a90d7; 667a547 has the same unless the rule says otherwise.
Rules of all engines, such as heads and equal card counts, are in pipeline/config/rules.py.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from stages.base.rules import Broken, Rules, given, hold
from stages.engines import layout_rules, upstream
from stages.engines.layout_rules import Laid
from stages.engines.mindspeed_rl import contract, verifiers
from stages.engines.mindspeed_rl.job import Job
from stages.engines.mindspeed_rl.train_yaml import fields
from stages.engines.tables import LOSS, add_rules, plain
from stages.models.families import family_of
from stages.rewards.config import RewardConfig

_EVALUATED: dict[str, list[list[object]]] = {"functions": [["number"], ["qwen_accuracy"]], "weights": [[1.0]]}
"""Rewards that evaluate may compute: conf/engine/mindspeed_rl.yaml's, and mindrlhf's for numbers in a box."""
TABLE = Path(__file__).with_name("rules.yaml")
RULES = Rules[Job]("mindspeed_rl")
RECIPE = Rules[Job]("mindspeed_rl_recipe")
"""Rules about keys that it would ignore silently, and about its own reward names."""


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
add_rules(PLACED, TABLE)


@PLACED.row("reward.{}", "cli/train_grpo.py", each=_EVALUATED)
def _other_rewards(placed: Placed, key: str) -> Broken:
    """Require rewards that only measure, since MindSpeed-RL does not train on them."""
    allowed = _EVALUATED[key]
    if list(getattr(placed.reward, key)) in allowed:
        return None
    rule = f"must be {' or '.join(map(str, allowed))}: MindSpeed-RL does not train on rewards of grpoflow"
    return rule, "set engine.verifier_function and engine.verifier_weight instead"


RULES.must(
    "model.rope_theta",
    hold(lambda job: float(job.model.rope_theta).is_integer(), "must be an integer", "choose engine=local"),
    "megatron/training/arguments.py: --rotary-base",
)
add_rules(RULES, TABLE)
RULES.include(
    layout_rules.RULES,
    lambda job: Laid(job.model, {"train": job.layout.train, "generate": job.layout.generate}),
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


# Key-value heads need not divide: MindSpeed-LLM repeats them before the exchange by default (a2c0733b9,
# features_manager/context_parallel/ulysses_context_parallel.py; training/arguments.py).
@RULES.row("layout.train.context_parallel", "MindSpeed's ulysses_context_parallel.py, validate_args")
def _ulysses(job: Job) -> Broken:
    """Require that model_parallel x context_parallel divides the number of attention heads."""
    heads, cut = job.model.num_attention_heads, job.layout.train.context_parallel
    if cut == 1 or heads % job.sequence_parts == 0:
        return None
    rule = f"model_parallel x context_parallel = {job.sequence_parts} must divide num_attention_heads={heads}"
    return rule, f"use {math.gcd(heads // job.layout.train.model_parallel, cut)}"


@RULES.row("engine.{}", "validate_config.py", each=("reward_npus", "reward_load"))
def _reward_model(job: Job, key: str) -> Broken:
    """Require both reward_npus and reward_load for a reward model."""
    npus, weights = job.engine.reward_npus, job.engine.reward_load
    if getattr(job.engine, key) is not None or (npus is None) == (weights is None):
        return None
    return "a reward model needs both reward_npus and reward_load", "set both, or neither"


def _replicas(job: Job) -> list[tuple[str, int]]:
    """Return name and number of the replicas of policy, reference and reward model."""
    separate = (("reference_npus", job.reference_npus), ("reward_npus", job.reward_npus))
    return [
        ("layout.train.data_parallel", job.layout.train.data_parallel),
        *(
            (f"replicas of engine.{key}", max(1, npus // job.cards_per_model))
            for key, npus in separate
            if npus
        ),
    ]


@RULES.row(
    "train.prompts_per_step",
    "validate_config.py: global_batch_size",
    each=lambda job: [*_replicas(job), ("layout.generate.data_parallel", job.layout.generate.data_parallel)],
)
def _whole_replicas(job: Job, replica: tuple[str, int]) -> Broken:
    """Require a multiple of the replicas of each role."""
    prompts, (name, count) = job.train.prompts_per_step, replica
    if prompts % count == 0:
        return None
    return f"must be a multiple of {name} = {count}", f"use {-(-prompts // count) * count}"


@RULES.row("engine.micro_batch_size", "validate_config.py", each=_replicas, unless=("whole_replicas",))
def _micro_batches(job: Job, replica: tuple[str, int]) -> Broken:
    """Require a divisor of the completions of a replica."""
    (name, count), micro = replica, job.engine.micro_batch_size
    completions = job.samples // count
    if completions % micro == 0:
        return None
    rule = f"must divide the {completions} completions of a replica ({name})"
    return rule, f"use {math.gcd(completions, micro)}"


@RULES.row("engine.mini_batch_size", "actor_hybrid_worker.py", unless=("mini_batch_size",))
def _mini_of_micro(job: Job) -> Broken:
    """Require that the micro-batches of all replicas divide the completions of an update."""
    completions = job.mini_batch_size * job.rollout.num_generations
    batch = job.layout.train.data_parallel * job.engine.micro_batch_size
    if completions % batch == 0:
        return None
    rule = (
        f"its {completions} completions must be a multiple of layout.train.data_parallel x "
        f"engine.micro_batch_size = {batch}"
    )
    return rule, "leave it null, or lower engine.micro_batch_size", job.mini_batch_size


add_rules(RECIPE, TABLE)
plain(
    RECIPE,
    "it",
    {
        "grpo_actor_loss_func.py": LOSS,
        "grpo_trainer_hybrid.py, group_norm": "scale_advantages",
        "grpo_trainer_hybrid.py": "validate_every lora_rank max_kl",
        "cli/train_grpo.py": "resample_rounds",
        "ours: stages/engines/mindspeed_rl/logs.py": "loggers",
        "megatron/training/checkpointing.py": "resume_from",
    },
)


@RECIPE.row("train.warmup_steps", "megatron/core/optimizer_param_scheduler.py")
def _warmup(job: Job) -> Broken:
    """Check that the warm-up ends before the schedule does, which Megatron asserts."""
    if job.warmup_fraction < 1:
        return None
    per_update = job.mini_batch_size * job.rollout.num_generations
    units = job.train.steps * job.train.prompts_per_step
    rule = (
        f"is too long: each update takes {per_update} of the {units} units of MindSpeed-RL's schedule "
        "(train.steps x train.prompts_per_step)"
    )
    return rule, f"use at most {(units - 1) // per_update}, or raise train.steps"


@RECIPE.row(
    "engine.verifier_function[{}]",
    "rule_verifier.py, verifier",
    each=lambda job: range(len(job.engine.verifier_function)),
)
def _known_verifier(job: Job, index: int) -> Broken:
    """Require a verifier function that MindSpeed-RL has."""
    known = verifiers.known_verifiers(job.engine)
    if verifiers.has_verifier(job.engine, job.engine.verifier_function[index]):
        return None
    rule = f"must be one of {', '.join(known)}: an unknown one is ignored and earns nothing"
    return rule, "use math_verify_reward" if "math_verify_reward" in known else "use acc"


RECIPE.must(
    "engine.verifier_function",
    given("must name at least one verifier: without it every reward is 0", "set it to [acc]"),
    "rule_verifier.py, verifier",
    name="some_verifier",
)


@RECIPE.row("engine.verifier_weight", "rule_verifier.py")
def _weights(job: Job) -> Broken:
    """Require one weight for each verifier function."""
    count = len(job.engine.verifier_function)
    if len(job.engine.verifier_weight) == count:
        return None
    return f"must have one weight for each of the {count} functions", f"set it to {[1.0] * count}"


@RECIPE.row("engine.prompt_type", str(contract.TEMPLATES))
def _prompt_type(job: Job) -> Broken:
    """Require a prompt type that MindSpeed-RL has."""
    known = verifiers.prompt_types(job.engine.mindspeed_rl_home)
    if job.engine.prompt_type in known:
        return None
    return f"must be one of {', '.join(known)}", "use qwen_r1"


RULES.include(RECIPE, lambda job: job)
upstream.add_rule(RULES, "engine", fields, "mindspeed_rl/config_cls")
