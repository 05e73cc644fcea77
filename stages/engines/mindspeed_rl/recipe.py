"""Rules about keys of a recipe that MindSpeed-RL would ignore silently, and about its own reward names.

Each source is a place in Ascend/MindSpeed-RL at 05a90d7; 667a547 has the same.
"""

from stages.base.rules import Broken, Rules, at_least, be, some
from stages.engines.mindspeed_rl import contract, verifiers
from stages.engines.mindspeed_rl.job import Job
from stages.engines.plain_grpo import LOSS, plain

RULES = Rules[Job]("mindspeed_rl_recipe")
_LOSS, _TRAINER = "grpo_actor_loss_func.py", "grpo_trainer_hybrid.py"
plain(
    RULES,
    "it",
    {
        _LOSS: LOSS,
        f"{_TRAINER}, group_norm": "scale_advantages",
        _TRAINER: "validate_every lora_rank max_kl",
        "cli/train_grpo.py": "resample_rounds",
        "ours: stages/engines/mindspeed_rl/logs.py": "loggers",
        "megatron/training/checkpointing.py": "resume_from",
    },
)
for _path, _required, _why, _source in (
    ("train.loss_type", "grpo", "it takes means over the tokens of a micro-batch", _LOSS),
    (
        "train.epsilon_high",
        lambda job: job.train.epsilon_low,
        "its one clip_ratio holds for both sides",
        _LOSS,
    ),
    ("train.adam_epsilon", 1e-8, "Megatron's default, for which it has no key", "megatron_config.py"),
    ("train.ref_model_sync_steps", 0, "its reference never changes", _TRAINER),
    ("rollout.min_tokens", 0, "its sampling_config has no such key", "generate_config.py"),
    ("rollout.repetition_penalty", 1.0, "its sampling_config has no such key", "generate_config.py"),
    ("tokenize.chat_template", False, "engine.prompt_type is the template", "preprocess_data.py"),
    ("tokenize.prompt_suffix", "", "engine.prompt_type is the template", "preprocess_data.py"),
    ("tokenize.compat", "none", "its own program writes the records", "preprocess_data.py"),
    (
        "tokenize.over_long",
        "drop",
        "its template ends with the assistant's turn, which must not be truncated",
        "templates.json",
    ),
):
    RULES.must(_path, be(_required, _why), _source)
RULES.must(
    "train.checkpoint_every",
    at_least(1, remedy="set it to the steps between checkpoints"),
    f"{_TRAINER}, save_interval",
)


@RULES.row("train.warmup_steps", "megatron/core/optimizer_param_scheduler.py")
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
    most = (units - 1) // per_update
    return rule, f"use at most {most}, or raise train.steps"


@RULES.row(
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


RULES.must(
    "engine.verifier_function",
    some("verifier: without it every reward is 0", "set it to [acc]"),
    "rule_verifier.py, verifier",
    name="some_verifier",
)


@RULES.row("engine.verifier_weight", "rule_verifier.py")
def _weights(job: Job) -> Broken:
    """Require one weight for each verifier function."""
    count = len(job.engine.verifier_function)
    if len(job.engine.verifier_weight) == count:
        return None
    return f"must have one weight for each of the {count} functions", f"set it to {[1.0] * count}"


@RULES.row("engine.prompt_type", str(contract.TEMPLATES))
def _prompt_type(job: Job) -> Broken:
    """Require a prompt type that MindSpeed-RL has."""
    known = verifiers.prompt_types(job.engine.mindspeed_rl_home)
    if job.engine.prompt_type in known:
        return None
    return f"must be one of {', '.join(known)}", "use qwen_r1"
