"""Rules of engine=areal: what AReaL computes wrongly without a word, ignores, or cannot do; and notes.

Each source is a file of AReaL 1.0.4 (below areal/). Rules of all engines are in pipeline/config/rules.py.
"""

from collections.abc import Iterator

from stages.base.checks import at_most, equal, multiple_of
from stages.base.errors import Problem
from stages.engines.areal.job import REQUEST_TIMEOUT_S, Job
from stages.engines.ray_rules import (
    card_note,
    fsdp_problems,
    logger_problems,
    rollout_card_problems,
    sampling_problems,
    server_problems,
    update_problems,
)
from stages.grpo.rules import lower_bound_problems
from stages.rewards.config import BUILTIN

ACTOR, LOSS, TRAINER = "trainer/ppo/actor.py", "utils/functional/functional.py", "trainer/rl_trainer.py"
SERVERS = "engine/vllm_remote.py, build_generation_request"


def problems(job: Job) -> Iterator[Problem]:
    """Yield what AReaL would compute wrongly, ignore, or die of."""
    yield from _algorithm(job)
    yield from _steps(job)
    yield from _rollout(job)
    yield from _asynchrony(job)
    yield from _correction(job)
    yield from _layout(job)
    yield from _batches(job)


def _algorithm(job: Job) -> Iterator[Problem]:
    """Yield problems of loss and reference."""
    train = job.train
    yield from equal("train.loss_type", train.loss_type, "dapo", "AReaL averages over all tokens", LOSS)
    yield from equal(
        "train.beta",
        train.beta,
        0.0,
        "AReaL has no KL term in the loss, but can subtract the KL from rewards, which also changes the "
        "advantages of earlier tokens",
        ACTOR,
        "set it to 0, and engine.kl_in_reward if the policy should stay near the fetched model",
    )
    yield from equal(
        "train.use_bias_correction_kl",
        train.use_bias_correction_kl,
        False,
        "AReaL does not correct its KL",
        ACTOR,
    )
    yield from equal(
        "train.mask_truncated_completions",
        train.mask_truncated_completions,
        False,
        "AReaL's mask_no_eos_with_zero gives them a reward of 0 instead",
        ACTOR,
    )
    yield from equal(
        "train.num_iterations", train.num_iterations, 1, "AReaL updates once per completion", ACTOR
    )
    yield from equal(
        "train.lora_rank",
        train.lora_rank,
        0,
        "grpoflow does not render LoRA for AReaL",
        "ours: stages/engines/areal/files.py",
    )
    yield from equal(
        "train.ref_model_sync_steps",
        train.ref_model_sync_steps,
        0,
        "AReaL's reference never changes",
        TRAINER,
    )


def _steps(job: Job) -> Iterator[Problem]:
    """Yield problems of what happens between and besides updates."""
    train = job.train
    yield from equal(
        "train.resample_rounds", train.resample_rounds, 0, "the driver gives each step its rows once", TRAINER
    )
    yield from equal(
        "train.validate_every",
        train.validate_every,
        0,
        "grpoflow's driver has no check on held-out prompts; evaluate has",
        "ours: stages/engines/areal/programs/grpoflow_areal/driver.py",
    )
    yield from equal("train.max_kl", train.max_kl, None, "AReaL does not stop by KL", TRAINER)
    yield from equal(
        "train.resume_from",
        train.resume_from,
        None,
        "AReaL cannot resume from another run's state",
        "utils/recover.py",
    )
    yield from logger_problems(job, "AReaL", "ours: stages/engines/areal/train.py")


def _rollout(job: Job) -> Iterator[Problem]:
    """Yield problems of prompts, sampling and the time for both."""
    unsent = "AReaL does not send it to vLLM"
    yield from sampling_problems(job, unsent, SERVERS, unsent)
    yield from equal(
        "tokenize.compat",
        job.tokenize.compat,
        "none",
        "it is a format of mindrlhf",
        "ours: stages/engines/areal/tokenize.py",
    )
    if job.request_timeout_s <= job.reward.timeout_s:
        yield Problem(
            "engine.request_timeout_s",
            job.engine.request_timeout_s,
            f"must be above reward.timeout_s={job.reward.timeout_s:g}, and null is {REQUEST_TIMEOUT_S:g}: "
            "AReaL leaves out a prompt whose completions have no rewards by then",
            "raise it, or lower reward.timeout_s",
            "infra/controller/rollout_controller.py",
        )


def _asynchrony(job: Job) -> Iterator[Problem]:
    """Yield problems of mode, staleness and interrupted completions."""
    engine, source = job.engine, "infra/staleness_manager.py"
    if not job.is_async:
        why = "with engine.mode=sync each step waits for completions of the newest weights"
        for key, value in (("staleness", engine.staleness), ("partial_rollout", engine.partial_rollout)):
            if value:
                yield Problem(
                    f"engine.{key}", value, f"has no effect: {why}", "set engine.mode=async", source
                )
        return
    if engine.partial_rollout is False:
        rule = "must not be false with engine.mode=async: AReaL goes on with interrupted completions"
        yield Problem("engine.partial_rollout", False, rule, "leave it null", "infra/remote_inf_engine.py")


def _correction(job: Job) -> Iterator[Problem]:
    """Yield problems of rollout.correction."""
    rollout, limits = job.rollout, "api/cli_args.py, RejectionSamplingConfig"
    yield from lower_bound_problems(rollout, f"{LOSS}, apply_rejection_sampling")
    if rollout.correction == "none":
        return
    yield from equal(
        "rollout.correction_level",
        rollout.correction_level,
        "token",
        "AReaL weights completions by the geometric mean of their tokens' ratios, not by the product",
        f"{LOSS}, apply_rejection_sampling",
    )
    if rollout.correction_max <= 1:
        rule = "must be above 1: AReaL refuses a limit that would leave out every token that changed"
        yield Problem("rollout.correction_max", rollout.correction_max, rule, "use 2.0", limits)


def _layout(job: Job) -> Iterator[Problem]:
    """Yield problems of sharding, and of cards and machines."""
    generate, ours = job.layout.generate, "ours: stages/engines/areal/files.py"
    degrees = ("model_parallel", "pipeline_stage", "context_parallel")
    why = "grpoflow renders FSDP for AReaL, which shards over all cards"
    yield from fsdp_problems(job, degrees, why, ours)
    why = "servers have tensor parallelism only"
    per_node = job.engine.cards_per_node if job.nodes > 1 else None
    yield from server_problems(job, "AReaL", why, ours, ours, per_node, "infra/scheduler/ray.py")
    yield from rollout_card_problems(job, job.rollout_cards, "api/alloc_mode.py")
    if job.on_cpu:
        yield from equal(
            "layout.generate.model_parallel",
            generate.model_parallel,
            1,
            "the server for CPUs holds a whole model",
            "ours: stages/engines/areal/programs/grpoflow_areal/cpu_server.py",
        )


def _batches(job: Job) -> Iterator[Problem]:
    """Yield problems of the prompts of a step and of an update."""
    prompts = job.train.prompts_per_step
    yield from update_problems(job, "AReaL divides a step into equal parts", ACTOR)
    yield from multiple_of(
        "train.prompts_per_step",
        prompts,
        job.train_cards,
        "layout.train.data_parallel",
        "each training worker gets as many prompts",
        "infra/controller/train_controller.py",
    )
    why, source = (
        "AReaL bounds the tokens of a pass: engine.micro_batch_tokens",
        "ours: stages/engines/areal/files.py",
    )
    yield from equal("engine.micro_batch_size", job.engine.micro_batch_size, 1, why, source)
    forward = "engine.forward_micro_batch_size"
    yield from equal(forward, job.engine.forward_micro_batch_size, None, why, source)
    if job.on_cpu:
        yield from equal(
            "engine.mini_batch_size",
            job.mini_batch_size,
            prompts,
            "on a CPU a pass holds one sequence, for which AReaL must know the sequences of an update",
            "engine/fsdp_engine.py, prepare_mb_list",
            "leave it null",
        )
    else:
        yield from at_most(
            "rollout.max_tokens",
            job.sample_length,
            job.engine.micro_batch_tokens,
            "engine.micro_batch_tokens",
            "with tokenize.max_prompt_length it is the longest sequence, which a pass must hold",
            "utils/data.py",
            "raise engine.micro_batch_tokens",
        )


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about what no rule forbids."""
    engine = job.engine
    yield card_note(job.train_cards, job.rollout_cards)
    if job.staleness and job.rollout.correction == "none":
        yield (
            "rollout.correction=none: tokens of older weights count like new ones; tis and mis weight them "
            "by how much their probability has changed"
        )
    if job.rollout.correction == "mis":
        yield "rollout.correction=mis: rejected tokens still count in AReaL's average over all tokens"
    if engine.kl_in_reward:
        yield (
            "engine.kl_in_reward: the KL lowers rewards token by token, so that results differ from those of "
            "a KL term in the loss (train.beta of other engines)"
        )
    if job.train.weight_decay:
        yield f"train.weight_decay={job.train.weight_decay}: AReaL applies it to norms and biases, too"
    if job.train.keep_checkpoints != 2:
        yield "train.keep_checkpoints: the driver keeps the last two states to resume from, whatever it says"
    if job.mini_batch_size != job.train.prompts_per_step:
        yield "engine.mini_batch_size: AReaL divides a step by tokens, so that groups are spread over updates"
    if any(name not in BUILTIN for name in job.reward.functions):
        yield "AReaL calls reward functions with completions as they come, not with those of a prompt"
    if not job.on_cpu:
        yield "engine=areal is rendered for NPUs, but grpoflow has run it on CPUs only"
