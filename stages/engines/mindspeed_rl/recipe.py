"""What of a recipe MindSpeed-RL can do, by its own names for it; what it would skip silently is refused.

Each rule names its place in Ascend/MindSpeed-RL at 05a90d7; 667a547 has the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from stages.base.errors import Problem, as_override
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.job import Job


def check(job: Job) -> Iterator[Problem]:
    """Every rule that algorithm, sampling, verifiers or prompts break."""
    yield from _algorithm(job)
    yield from _rollout(job)
    yield from _verifiers(job)
    yield from _prompts(job)


def _algorithm(job: Job) -> Iterator[Problem]:
    train = job.train
    for key, wanted, why in (
        ("loss_type", "grpo", "it takes means over the tokens of a micro-batch (grpo_actor_loss_func.py)"),
        (
            "scale_advantages",
            True,
            "it always divides by the group's standard deviation (grpo_trainer_hybrid.py, group_norm)",
        ),
        (
            "epsilon_high",
            train.epsilon_low,
            "its one clip_ratio holds for both sides (grpo_actor_loss_func.py)",
        ),
        ("importance_sampling_level", "token", "it weighs token by token (grpo_actor_loss_func.py)"),
        ("use_bias_correction_kl", False, "it does not correct its KL term (grpo_actor_loss_func.py)"),
        (
            "mask_truncated_completions",
            False,
            "it trains on completions that were cut off, too (grpo_actor_loss_func.py)",
        ),
        ("adam_epsilon", 1e-8, "megatron_config.py has no such key, and Megatron's default is 1e-8"),
        ("resample_rounds", 0, "cli/train_grpo.py samples each step once"),
        ("ref_model_sync_steps", 0, "its reference stays (grpo_trainer_hybrid.py)"),
        ("validate_every", 0, "grpo_trainer_hybrid.py has no check on held-out prompts; evaluate has"),
        ("max_kl", None, "it does not stop by KL (grpo_trainer_hybrid.py)"),
        (
            "resume_from",
            None,
            "it goes on from its own checkpoints only (megatron/training/checkpointing.py)",
        ),
    ):
        if getattr(train, key) != wanted:
            yield Problem(
                f"train.{key}",
                getattr(train, key),
                f"must be {as_override(wanted)}: {why}",
                f"set it to {as_override(wanted)}",
            )
    if train.checkpoint_every < 1:
        yield Problem(
            "train.checkpoint_every",
            train.checkpoint_every,
            "must be at least 1 (grpo_trainer_hybrid.py, save_interval)",
            "set it to the steps between checkpoints",
        )
    if train.warmup_steps >= train.steps:
        yield Problem(
            "train.warmup_steps",
            train.warmup_steps,
            f"must be below train.steps={train.steps} (megatron/core/optimizer_param_scheduler.py)",
            f"use at most {train.steps - 1}",
        )


def _rollout(job: Job) -> Iterator[Problem]:
    for key, wanted in (("min_tokens", 0), ("repetition_penalty", 1.0)):
        if getattr(job.rollout, key) != wanted:
            yield Problem(
                f"rollout.{key}",
                getattr(job.rollout, key),
                f"must be {wanted}: its sampling_config has no such key (generate_config.py)",
                f"set it to {wanted}",
            )


def _verifiers(job: Job) -> Iterator[Problem]:
    engine = job.engine
    known = contract.verifiers(engine.mindspeed_rl_home, job.version)
    for i, name in enumerate(engine.verifier_function):
        if name not in known:
            yield Problem(
                f"engine.verifier_function[{i}]",
                name,
                f"must be one of {', '.join(sorted(known))}: an unknown one is skipped silently and earns "
                "nothing (rule_verifier.py, verifier)",
                "use math_verify_reward" if "math_verify_reward" in known else "use acc",
            )
    if not engine.verifier_function:
        rule = "must name at least one: without it every reward is 0 (rule_verifier.py, verifier)"
        yield Problem("engine.verifier_function", [], rule, "set it to [acc]")
    if len(engine.verifier_function) != len(engine.verifier_weight):
        yield Problem(
            "engine.verifier_weight",
            list(engine.verifier_weight),
            f"must have one weight for each of the {len(engine.verifier_function)} functions "
            "(rule_verifier.py)",
            f"set it to {[1.0] * len(engine.verifier_function)}",
        )


def _prompts(job: Job) -> Iterator[Problem]:
    known = contract.prompt_types(job.engine.mindspeed_rl_home)
    if job.engine.prompt_type not in known:
        yield Problem(
            "engine.prompt_type",
            job.engine.prompt_type,
            f"must be one of {', '.join(sorted(known))} ({contract.TEMPLATES})",
            "use qwen_r1",
        )
    for key, wanted, why in (
        ("chat_template", False, "engine.prompt_type is the template (preprocess_data.py)"),
        ("prompt_suffix", "", "engine.prompt_type is the template (preprocess_data.py)"),
        ("compat", "none", "its own preprocess_data.py makes the records"),
        (
            "over_long",
            "drop",
            "its template ends in the assistant's turn, which must not be cut (templates.json)",
        ),
    ):
        shown = as_override(wanted) or "''"
        if getattr(job.tokenize, key) != wanted:
            yield Problem(
                f"tokenize.{key}",
                getattr(job.tokenize, key),
                f"must be {shown}: {why}",
                f"set it to {shown}",
            )
