"""Rules of engine=verl: what verl checks after taking the cards, ignores, or cannot do; and notes.

Each source is a file of verl 0.9.1. Rules of all engines are in pipeline/config/rules.py.
"""

from collections.abc import Iterator

from stages.base.checks import at_most, equal, multiple_of
from stages.base.errors import Problem
from stages.base.keys import leaves
from stages.engines.ray_rules import (
    fsdp_problems,
    logger_problems,
    sampling_problems,
    server_problems,
    update_problems,
)
from stages.engines.verl import agent, inference, separate
from stages.engines.verl.files import loss_mode
from stages.engines.verl.job import CPUS_PER_WORKER, Job
from stages.grpo.rules import algorithm_notes
from stages.rewards.config import BUILTIN


def problems(job: Job) -> Iterator[Problem]:
    """Yield what verl would refuse, ignore silently or die of."""
    yield from _algorithm(job)
    yield from _losses(job)
    yield from _rollout(job)
    yield from _layout(job)
    yield from _batches(job)
    yield from inference.problems(job)
    yield from separate.problems(job)
    yield from agent.problems(job)


def _algorithm(job: Job) -> Iterator[Problem]:
    """Yield problems of loss, reference, learning rate and LoRA."""
    train, engine = job.train, job.engine
    losses, trainer = "workers/utils/losses.py", "trainer/ppo/v1/trainer_base.py"
    yield from equal(
        "train.use_bias_correction_kl",
        train.use_bias_correction_kl,
        False,
        "verl does not correct its KL term",
        losses,
    )
    yield from equal(
        "train.mask_truncated_completions",
        train.mask_truncated_completions,
        False,
        "verl trains on completions that were cut off, too",
        losses,
    )
    yield from equal("train.max_kl", train.max_kl, None, "verl does not stop by KL", trainer)
    yield from equal(
        "train.resume_from",
        train.resume_from,
        None,
        "verl cannot resume from another run's checkpoint",
        trainer,
    )
    yield from equal(
        "train.ref_model_sync_steps", train.ref_model_sync_steps, 0, "verl's reference never changes", trainer
    )
    yield from logger_problems(job, "verl", "ours: stages/engines/verl/train.py")
    if train.schedule == "linear" and engine.strategy == "fsdp2":
        rule = "must be constant or cosine with engine.strategy=fsdp2"
        source = "workers/engine/fsdp/transformer_impl.py"
        yield Problem("train.schedule", train.schedule, rule, "use cosine", source)
    yield from multiple_of(
        "train.warmup_steps",
        train.warmup_steps,
        train.num_iterations,
        "train.num_iterations",
        "verl changes the learning rate once per step",
        "workers/engine_workers.py, train_mini_batch",
    )
    if engine.strategy == "megatron":
        yield from equal(
            "train.lora_rank",
            train.lora_rank,
            0,
            "grpoflow renders LoRA for engine.strategy=fsdp2 only",
            "ours: stages/engines/verl/files.py",
        )
    elif engine.rollout == "vllm":
        yield from at_most(
            "train.lora_rank",
            train.lora_rank,
            512,
            "",
            "vLLM loads adapters up to this rank",
            "workers/rollout/vllm_rollout/utils.py",
        )


def _losses(job: Job) -> Iterator[Problem]:
    """Yield problems of the loss of a token and of advantages."""
    train, engine, source = job.train, job.engine, "trainer/ppo/core_algos.py"
    mode, level = loss_mode(job), train.importance_sampling_level
    if engine.loss_mode is not None and train.loss_type in ("cispo", "sapo"):
        rule = f"is another loss than train.loss_type={train.loss_type}"
        remedy = (
            "set it to null, or choose the averaging of token losses: train.loss_type=grpo, dapo or dr_grpo"
        )
        yield Problem("engine.loss_mode", mode, rule, remedy, source)
    if mode not in ("vanilla", "gspo"):
        why = f"verl's {mode} has no ratio per completion"
        yield from equal("train.importance_sampling_level", level, "token", why, source)
    if mode != "vanilla":
        why = f"verl's {mode} has no dual clip"
        yield from equal("train.clip_ratio_c", train.clip_ratio_c, None, why, source)
    key = "actor_rollout_ref.actor.policy_loss.dro_beta"
    if mode == "dro" and key not in dict(leaves(engine.upstream)):
        rule, remedy = "needs the weight of its penalty", f"add +engine.upstream.{key}=VALUE"
        yield Problem("engine.loss_mode", mode, rule, remedy, f"{source}, compute_policy_loss_dro")
    completions = job.mini_batch_size * job.rollout.num_generations // job.replicas
    if mode == "geo_mean" and engine.micro_batch_size < completions:
        rule = (
            f"must hold all {completions} completions of a worker's update with engine.loss_mode=geo_mean, "
            "whose mean is that of a micro-batch: the gradients of several add up"
        )
        where = f"{source}, compute_policy_loss_geo_mean"
        yield Problem("engine.micro_batch_size", engine.micro_batch_size, rule, f"use {completions}", where)
    if engine.adv_estimator is not None and train.advantages != "grpo":
        rule = f"is another estimator than train.advantages={train.advantages}"
        remedy = "set it to null, or train.advantages=grpo"
        yield Problem("engine.adv_estimator", engine.adv_estimator, rule, remedy, source)


def _rollout(job: Job) -> Iterator[Problem]:
    """Yield problems of prompts and sampling."""
    source, unread = "trainer/ppo/v1/agent_loop_tq.py", "verl does not pass it to the rollout"
    yield from sampling_problems(job, unread, source, "verl always uses 1")
    yield from equal(
        "tokenize.compat",
        job.tokenize.compat,
        "none",
        "verl renders the chat template itself",
        "experimental/agent_loop",
    )


def _layout(job: Job) -> Iterator[Problem]:
    """Yield problems of sharding, and of cards and machines."""
    train, engine = job.layout.train, job.engine
    if engine.strategy == "fsdp2":
        source = "workers/engine/fsdp/transformer_impl.py"
        yield from fsdp_problems(
            job, ("model_parallel", "pipeline_stage"), "FSDP shards over all cards", source
        )
    if job.on_cpu:
        yield from equal(
            "layout.train.context_parallel",
            train.context_parallel,
            1,
            "the plugin for CPUs pads sequences, which Ulysses does not allow",
            "workers/config/actor.py",
            "raise data_parallel instead",
        )
        yield from equal(
            "engine.strategy",
            engine.strategy,
            "fsdp2",
            "Megatron needs NPUs or GPUs",
            "workers/engine/megatron",
        )
    yield from server_problems(
        job,
        "verl",
        "completions are generated with tensor and data parallelism only",
        "workers/rollout/replica.py",
        "ours: stages/engines/verl/files.py",
        engine.cards_per_node if job.nodes > 1 else None,
        "workers/rollout/replica.py",
    )
    if job.nodes > 1 and job.train_cards % engine.cards_per_node != 0:
        rule = (
            f"makes {job.train_cards} cards that train, which do not fill machines with "
            f"launcher.cards_per_node={engine.cards_per_node}"
        )
        remedy = "verl needs as many cards on each machine"
        source = "single_controller/ray/base.py, RayResourcePool"
        yield Problem("layout.train.data_parallel", train.data_parallel, rule, remedy, source)


def _batches(job: Job) -> Iterator[Problem]:
    """Yield problems of the prompts of a step and of an update."""
    prompts = job.train.prompts_per_step
    why = "the last update would have fewer completions"
    yield from update_problems(job, why, "utils/tensordict_utils.py, make_iterator")
    for part, count in (("step", prompts), ("update", job.mini_batch_size)):
        completions = count * job.rollout.num_generations
        if completions % job.train_cards != 0:
            rule = f"gives {completions} completions per {part}, which {job.train_cards} cards cannot share"
            source = "utils/config.py; workers/engine_workers.py"
            yield Problem("train.prompts_per_step", prompts, rule, "use a multiple", source)


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about what no rule forbids."""
    train = job.train
    yield from algorithm_notes(train)
    if job.engine.strategy == "megatron":
        yield "engine.strategy=megatron is rendered, but grpoflow has never run it"
    if train.num_iterations > 1 and (train.schedule != "constant" or train.warmup_steps):
        yield "verl changes the learning rate once per step, not once per update"
    if train.warmup_steps:
        yield "verl's warm-up begins with a learning rate of 0: the first step trains nothing"
    if train.weight_decay:
        yield f"train.weight_decay={train.weight_decay}: verl applies it to norms and biases, too"
    if any(name not in BUILTIN for name in job.reward.functions):
        yield "verl calls reward functions with completions as they come, not with those of a prompt"
    if not job.on_cpu:
        yield f"Ray reserves {CPUS_PER_WORKER} CPUs for each card; with fewer the run waits forever"
    yield from inference.notes(job)
    yield from separate.notes(job)
    yield from agent.notes(job)
