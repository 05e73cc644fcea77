"""What AReaL computes wrongly without a word, ignores, or cannot do; and what a user should know.

Each source is a file of AReaL 1.0.4 (below areal/). Rules of all engines are in pipeline/config/rules.py.
"""

from collections.abc import Iterator

from stages.base.checks import at_most, divides, equal, multiple_of
from stages.base.errors import Problem
from stages.base.layout import ROLES
from stages.engines.areal.job import Job
from stages.engines.layout_rules import layout_problems
from stages.rewards.config import BUILTIN

ACTOR, LOSS, TRAINER = "trainer/ppo/actor.py", "utils/functional/functional.py", "trainer/rl_trainer.py"
SERVERS = "engine/vllm_remote.py, build_generation_request"


def problems(job: Job) -> Iterator[Problem]:
    """Yield what AReaL would compute wrongly, ignore, or die of."""
    yield from _algorithm(job)
    yield from _steps(job)
    yield from _rollout(job)
    yield from _asynchrony(job)
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
    yield from equal(
        "train.loggers",
        train.loggers,
        (),
        "grpoflow gives AReaL's numbers to TensorBoard alone",
        "ours: stages/engines/areal/train.py",
    )


def _rollout(job: Job) -> Iterator[Problem]:
    """Yield problems of prompts and sampling."""
    rollout, unsent = job.rollout, "AReaL does not send it to vLLM"
    yield from equal("rollout.min_tokens", rollout.min_tokens, 0, unsent, SERVERS)
    yield from equal("rollout.min_p", rollout.min_p, None, unsent, SERVERS)
    yield from equal("rollout.repetition_penalty", rollout.repetition_penalty, 1.0, unsent, SERVERS)
    yield from equal(
        "tokenize.compat",
        job.tokenize.compat,
        "none",
        "it is a format of mindrlhf",
        "ours: stages/engines/areal/tokenize.py",
    )


def _asynchrony(job: Job) -> Iterator[Problem]:
    """Yield problems of mode, staleness and behaviour weights."""
    engine, source = job.engine, "infra/staleness_manager.py"
    if not job.is_async:
        why = "with engine.mode=sync each step waits for completions of the newest weights"
        for key, value in (("staleness", engine.staleness), ("partial_rollout", engine.partial_rollout)):
            if value:
                yield Problem(
                    f"engine.{key}", value, f"has no effect: {why}", "set engine.mode=async", source
                )
        if engine.behaviour_weight != "none":
            rule = "has no effect: AReaL weights by the generating policy only in its decoupled loss"
            yield Problem(
                "engine.behaviour_weight", engine.behaviour_weight, rule, "set engine.mode=async", LOSS
            )
        return
    if engine.partial_rollout is False:
        rule = "must not be false with engine.mode=async: AReaL goes on with interrupted completions"
        yield Problem("engine.partial_rollout", False, rule, "leave it null", "infra/remote_inf_engine.py")
    if engine.behaviour_weight != "none" and engine.behaviour_limit <= 1:
        yield Problem(
            "engine.behaviour_limit",
            engine.behaviour_limit,
            "must be above 1: AReaL refuses a limit that would leave out every token that changed",
            "use 5.0",
            "api/cli_args.py, RejectionSamplingConfig",
        )


def _layout(job: Job) -> Iterator[Problem]:
    """Yield problems of sharding, and of cards and machines."""
    train, generate, engine = job.layout.train, job.layout.generate, job.engine
    for key, degree in (
        ("model_parallel", train.model_parallel),
        ("pipeline_stage", train.pipeline_stage),
        ("context_parallel", train.context_parallel),
    ):
        yield from equal(
            f"layout.train.{key}",
            degree,
            1,
            "grpoflow renders FSDP for AReaL, which shards over all cards",
            "ours: stages/engines/areal/files.py",
            "raise data_parallel instead",
        )
    for key, degree in (
        ("pipeline_stage", generate.pipeline_stage),
        ("context_parallel", generate.context_parallel),
    ):
        yield from equal(
            f"layout.generate.{key}",
            degree,
            1,
            "servers have tensor parallelism only",
            "ours: stages/engines/areal/files.py",
        )
    for role in ROLES:
        yield from equal(
            f"layout.{role}.expert_parallel",
            job.layout.role(role).expert_parallel,
            1,
            "grpoflow does not render it for AReaL",
            "ours: stages/engines/areal/files.py",
        )
    yield from layout_problems(job.model, {role: job.layout.role(role) for role in ROLES})
    yield from multiple_of(
        "engine.rollout_cards",
        job.rollout_cards,
        generate.model_parallel,
        "layout.generate.model_parallel",
        "each server has so many cards",
        "api/alloc_mode.py",
    )
    if job.on_cpu:
        yield from equal(
            "layout.generate.model_parallel",
            generate.model_parallel,
            1,
            "the server for CPUs holds a whole model",
            "ours: stages/engines/areal/programs/grpoflow_areal/cpu_server.py",
        )
    if job.nodes > 1:
        yield from divides(
            "layout.generate.model_parallel",
            generate.model_parallel,
            engine.cards_per_node,
            "engine.cards_per_node",
            "a server stays on one machine",
            "infra/scheduler/ray.py",
        )


def _batches(job: Job) -> Iterator[Problem]:
    """Yield problems of the prompts of a step and of an update."""
    prompts = job.train.prompts_per_step
    yield from divides(
        "engine.mini_batch_size",
        job.mini_batch_size,
        prompts,
        "train.prompts_per_step",
        "AReaL divides a step into equal parts",
        ACTOR,
        "leave it null",
    )
    yield from multiple_of(
        "train.prompts_per_step",
        prompts,
        job.train_cards,
        "layout.train.data_parallel",
        "each training worker gets as many prompts",
        "infra/controller/train_controller.py",
    )
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
    yield (
        f"{job.train_cards} cards train and {job.rollout_cards} others generate (engine.rollout_cards): "
        f"{job.cards} in all"
    )
    if job.is_async and engine.behaviour_weight == "none" and job.staleness:
        yield (
            "engine.behaviour_weight=none: completions of older weights count like new ones; AReaL weights "
            "them with clamp or mask only"
        )
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
        yield "AReaL calls reward functions with one completion at a time, not with all of a step"
    if not job.on_cpu:
        yield "engine=areal is rendered for NPUs, but grpoflow has run it on CPUs only"
