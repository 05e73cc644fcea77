"""What MindSpeed-RL checks after taking the cards, ignores silently, or cannot do; notes for its users.

Each source is a place in Ascend/MindSpeed-RL at c21465a, in MindSpeed, Megatron-LM or vLLM.
Rules of all engines, such as heads and equal card counts, are in pipeline/config/rules.py.
"""

import math
from collections.abc import Iterator

from stages.base.checks import at_least, at_most, divides, equal, multiple_of
from stages.base.errors import Problem
from stages.engines.layout_rules import layout_problems
from stages.engines.mindspeed_rl import contract, verifiers
from stages.engines.mindspeed_rl.files import SEPARATE
from stages.engines.mindspeed_rl.job import Job
from stages.grpo.rules import correction_problems
from stages.rewards.config import RewardConfig

_REWARDS: tuple[tuple[str, ...], ...] = (("number",), ("qwen_accuracy",))
"""Rewards that evaluate may compute: conf/engine/mindspeed_rl.yaml's, and mindrlhf's for numbers in a box."""
_VALIDATION, _LOSS, _TRAINER = "validate_config.py", "grpo_actor_loss_func.py", "grpo_trainer_hybrid.py"


def problems(job: Job) -> Iterator[Problem]:
    """Yield what MindSpeed-RL would refuse, ignore silently or die of."""
    yield from _model(job)
    yield from _layout(job)
    yield from _roles(job)
    yield from _batches(job)
    yield from _lengths(job)
    yield from _loss(job)
    yield from _schedule(job)
    yield from _prompts(job)
    yield from _verifiers(job)


def evaluation_problems(reward: RewardConfig) -> Iterator[Problem]:
    """Yield problems of evaluate's rewards: MindSpeed-RL does not train on them."""
    remedy, source = "set engine.verifier_function and engine.verifier_weight instead", "cli/train_grpo.py"
    why = "MindSpeed-RL does not train on rewards of grpoflow"
    if reward.functions not in _REWARDS:
        accepted = " or ".join(str(list(functions)) for functions in _REWARDS)
        rule = f"must be {accepted}: {why}"
        yield Problem("reward.functions", list(reward.functions), rule, remedy, source)
    yield from equal("reward.weights", reward.weights, (1.0,), why, source, remedy)


def _model(job: Job) -> Iterator[Problem]:
    """Yield problems of the model."""
    model = job.model
    if not float(model.rope_theta).is_integer():
        source = "megatron/training/arguments.py: --rotary-base"
        yield Problem(
            "model.rope_theta", model.rope_theta, "must be an integer", "choose engine=local", source
        )
    yield from equal(
        "model.qkv_concat",
        model.qkv_concat,
        False,
        "the converter reads separate weights",
        "convert_ckpt.py",
    )
    yield from divides(
        "layout.train.model_parallel",
        job.layout.train.model_parallel,
        model.vocab_size,
        "vocab_size",
        "",
        "megatron/core/tensor_parallel/layers.py",
    )


def _layout(job: Job) -> Iterator[Problem]:
    """Yield problems of sharding."""
    train, generate = job.layout.train, job.layout.generate
    source = "config_cls: megatron_config.py"
    yield from equal("layout.train.opt_offload", train.opt_offload, False, "it has no swap_optimizer", source)
    yield from equal(
        "layout.train.context_parallel",
        train.context_parallel,
        1,
        "it has no context_parallel_algo",
        source,
        "set it to 1 and raise model_parallel or data_parallel",
    )
    yield from layout_problems(job.model, {"train": train, "generate": generate})
    for key, degree in (
        ("pipeline_stage", generate.pipeline_stage),
        ("context_parallel", generate.context_parallel),
    ):
        yield from equal(
            f"layout.generate.{key}",
            degree,
            1,
            "generation is tensor and data parallel only",
            "validate_config.py: pipeline_parallel for vllm",
            "set it to 1 and raise model_parallel or data_parallel",
        )
    yield from equal(
        "layout.train.vocab_emb_dp",
        train.vocab_emb_dp,
        False,
        "Megatron always splits the vocabulary",
        "megatron/core/tensor_parallel/layers.py",
    )


def _roles(job: Job) -> Iterator[Problem]:
    """Yield problems of cards for the reference and for a reward model."""
    engine = job.engine
    for key, npus in (("reference_npus", engine.reference_npus), ("reward_npus", engine.reward_npus)):
        if npus is None:
            continue
        if engine.use_integrated_worker:
            why, remedy = "integrated workers share their cards", "set engine.use_integrated_worker=false"
            yield from equal(f"engine.{key}", npus, None, why, _VALIDATION, remedy)
        else:
            yield from multiple_of(
                f"engine.{key}",
                npus,
                job.cards_per_model,
                "layout.train's model_parallel x pipeline_stage",
                "",
                "validate_config.py, _validate_resource",
            )
    if (engine.reward_npus is None) != (engine.reward_load is None):
        key = "reward_npus" if engine.reward_npus is None else "reward_load"
        rule, remedy = "a reward model needs both reward_npus and reward_load", "set both, or neither"
        yield Problem(f"engine.{key}", None, rule, remedy, _VALIDATION)
    if engine.use_integrated_worker:
        for section in SEPARATE:
            if section in engine.upstream:
                rule = "must not be set: MindSpeed-RL refuses this section with integrated workers"
                remedy = "set engine.use_integrated_worker=false"
                value = engine.upstream[section]
                yield Problem(f"engine.upstream.{section}", value, rule, remedy, _VALIDATION)


def _replicas(job: Job) -> list[tuple[str, int]]:
    """Return name and number of the replicas of policy, reference and reward model."""
    found = [("layout.train.data_parallel", job.layout.train.data_parallel)]
    for key, npus in (("reference_npus", job.reference_npus), ("reward_npus", job.reward_npus)):
        if npus:
            found.append((f"replicas of engine.{key}", max(1, npus // job.cards_per_model)))
    return found


def _batches(job: Job) -> Iterator[Problem]:
    """Yield problems of the prompts and completions of a step, of an update and of a pass."""
    engine, prompts, replicas = job.engine, job.train.prompts_per_step, _replicas(job)
    for name, count in (*replicas, ("layout.generate.data_parallel", job.layout.generate.data_parallel)):
        yield from multiple_of(
            "train.prompts_per_step", prompts, count, name, "", "validate_config.py: global_batch_size"
        )
    for name, count in replicas:
        completions = job.samples // count
        if prompts % count == 0 and completions % engine.micro_batch_size != 0:
            rule = f"must divide the {completions} completions of a replica ({name})"
            remedy = f"use {math.gcd(completions, engine.micro_batch_size)}"
            yield Problem("engine.micro_batch_size", engine.micro_batch_size, rule, remedy, _VALIDATION)
    yield from divides(
        "engine.mini_batch_size",
        job.mini_batch_size,
        prompts,
        "train.prompts_per_step",
        "the last update would have fewer completions, but the same weight",
        "base_training_engine.py, _split_batches",
        "leave it null",
    )
    completions = job.mini_batch_size * job.rollout.num_generations
    batch = job.layout.train.data_parallel * engine.micro_batch_size
    if prompts % job.mini_batch_size == 0 and completions % batch != 0:
        rule = (
            f"its {completions} completions must be a multiple of layout.train.data_parallel x "
            f"engine.micro_batch_size = {batch}"
        )
        remedy = "leave it null, or lower engine.micro_batch_size"
        source = "actor_hybrid_worker.py"
        yield Problem("engine.mini_batch_size", job.mini_batch_size, rule, remedy, source)
    if engine.forward_micro_batch_size is not None:
        yield from divides(
            "engine.forward_micro_batch_size",
            engine.forward_micro_batch_size,
            job.samples_per_replica,
            "the {} completions of one replica",
            "",
            "base_training_engine.py",
            "leave it null",
        )


def _lengths(job: Job) -> Iterator[Problem]:
    """Yield problems of the lengths of training's sequences and of vLLM's."""
    yield from multiple_of(
        "engine.seq_length",
        job.seq_length,
        job.layout.train.model_parallel,
        "layout.train.model_parallel",
        "sequence parallelism splits a sequence into that many parts",
        "megatron/core/tensor_parallel/mappings.py",
        "leave it null",
    )
    yield from at_least(
        "engine.seq_length",
        job.seq_length,
        job.sample_length,
        "tokenize.max_prompt_length + rollout.max_tokens",
        "",
        _VALIDATION,
        "leave it null, or shorten them",
    )
    yield from at_least(
        "engine.max_model_len",
        job.max_model_len,
        job.seq_length,
        "seq_length",
        "",
        "validate_config.py: Sequence length exceeds vLLM",
        "leave it null",
    )
    yield from at_most(
        "engine.max_num_seqs",
        job.engine.max_num_seqs,
        job.max_num_batched_tokens,
        "max_num_batched_tokens",
        "",
        "vllm config.py, SchedulerConfig",
    )
    yield from at_most(
        "engine.seq_length",
        job.max_model_len,
        job.model.max_position_embeddings,
        "model.max_position_embeddings",
        "",
        "vllm config.py",
        "shorten tokenize.max_prompt_length or rollout.max_tokens",
    )


def _loss(job: Job) -> Iterator[Problem]:
    """Yield problems of the loss, advantages and reference."""
    train = job.train
    yield from correction_problems(job.rollout, "its loss has no weights for it", _LOSS)
    yield from equal(
        "train.loss_type", train.loss_type, "grpo", "it takes means over the tokens of a micro-batch", _LOSS
    )
    yield from equal(
        "train.epsilon_high",
        train.epsilon_high,
        train.epsilon_low,
        "its one clip_ratio holds for both sides",
        _LOSS,
    )
    yield from equal(
        "train.importance_sampling_level",
        train.importance_sampling_level,
        "token",
        "it weighs token by token",
        _LOSS,
    )
    yield from equal(
        "train.use_bias_correction_kl",
        train.use_bias_correction_kl,
        False,
        "it does not correct its KL term",
        _LOSS,
    )
    yield from equal(
        "train.mask_truncated_completions",
        train.mask_truncated_completions,
        False,
        "it trains on completions that were cut off, too",
        _LOSS,
    )
    yield from equal(
        "train.scale_advantages",
        train.scale_advantages,
        True,
        "it always divides by the group's standard deviation",
        "grpo_trainer_hybrid.py, group_norm",
    )
    yield from equal(
        "train.advantages",
        train.advantages,
        "grpo",
        "its only other estimator, gae, needs a critic",
        "compute_utils.py, compute_advantage",
    )
    yield from equal(
        "train.entropy_coeff",
        train.entropy_coeff,
        0.0,
        "grpoflow does not render it",
        _LOSS,
        f"set it to 0 and +engine.upstream.rl_config.entropy_coeff={train.entropy_coeff}",
    )
    yield from equal(
        "train.kl_estimator",
        train.kl_estimator,
        "k3",
        "grpoflow does not render another one",
        "utils/compute.py, compute_kl_penalty",
        "set it to k3 and +engine.upstream.rl_config.kl_penalty=kl (k1) or mse (k2)",
    )
    yield from equal("train.clip_ratio_c", train.clip_ratio_c, None, "it has no dual clip", _LOSS)
    yield from equal(
        "train.ref_model_sync_steps",
        train.ref_model_sync_steps,
        0,
        "its reference never changes",
        _TRAINER,
    )
    yield from equal("train.lora_rank", train.lora_rank, 0, "it trains all weights", _TRAINER)


def _schedule(job: Job) -> Iterator[Problem]:
    """Yield problems of optimizer, learning rate, checkpoints and what follows a run."""
    train = job.train
    yield from equal(
        "train.adam_epsilon",
        train.adam_epsilon,
        1e-8,
        "Megatron's default, for which it has no key",
        "megatron_config.py",
    )
    if job.warmup_fraction >= 1:
        per_update = job.mini_batch_size * job.rollout.num_generations
        units = train.steps * train.prompts_per_step
        rule = (
            f"is too long: each update takes {per_update} of the {units} units of MindSpeed-RL's schedule "
            "(train.steps x train.prompts_per_step)"
        )
        remedy = f"use at most {(units - 1) // per_update}, or raise train.steps"
        source = "megatron/core/optimizer_param_scheduler.py"  # Megatron asserts that it ends earlier
        yield Problem("train.warmup_steps", train.warmup_steps, rule, remedy, source)
    every = train.checkpoint_every
    yield from at_least(
        "train.checkpoint_every",
        every,
        1,
        "",
        "",
        "grpo_trainer_hybrid.py, save_interval",
        "set it to the steps between checkpoints",
    )
    if every >= 1 and train.steps % every != 0:
        rule = f"must divide train.steps={train.steps}: MindSpeed-RL saves nothing at the end"
        remedy = f"use {math.gcd(every, train.steps)}"
        yield Problem("train.checkpoint_every", every, rule, remedy, "grpo_trainer_hybrid.py, fit")
    yield from equal(
        "train.resume_from",
        train.resume_from,
        None,
        "it cannot resume from another run's checkpoint",
        "megatron/training/checkpointing.py",
    )
    yield from equal(
        "train.validate_every",
        train.validate_every,
        0,
        "it has no check on held-out prompts; evaluate has",
        _TRAINER,
    )
    yield from equal("train.max_kl", train.max_kl, None, "it does not stop by KL", _TRAINER)
    yield from equal(
        "train.loggers",
        train.loggers,
        (),
        "it gives its numbers to TensorBoard alone",
        "ours: stages/engines/mindspeed_rl/results.py",
    )


def _prompts(job: Job) -> Iterator[Problem]:
    """Yield problems of prompts and sampling."""
    tokenize, rollout = job.tokenize, job.rollout
    template, program = "engine.prompt_type is the template", "preprocess_data.py"
    yield from equal("tokenize.chat_template", tokenize.chat_template, False, template, program)
    yield from equal("tokenize.prompt_suffix", tokenize.prompt_suffix, "", template, program)
    yield from equal(
        "tokenize.compat", tokenize.compat, "none", "its own program writes the records", program
    )
    yield from equal(
        "tokenize.over_long",
        tokenize.over_long,
        "drop",
        "its template ends with the assistant's turn, which must not be truncated",
        "templates.json",
    )
    no_key, source = "its sampling_config has no such key", "generate_config.py"
    yield from equal("rollout.min_tokens", rollout.min_tokens, 0, no_key, source)
    yield from equal("rollout.repetition_penalty", rollout.repetition_penalty, 1.0, no_key, source)
    yield from equal(
        "train.resample_rounds",
        job.train.resample_rounds,
        0,
        "it samples each step once",
        "cli/train_grpo.py",
    )


def _verifiers(job: Job) -> Iterator[Problem]:
    """Yield problems of the rewards that it trains on, and of the template that asks for them."""
    engine = job.engine
    source = "rule_verifier.py, verifier"
    for index, name in enumerate(engine.verifier_function):
        if not verifiers.has_verifier(engine, name):
            known = ", ".join(sorted(verifiers.NEEDS))
            rule = f"must be one of {known}: an unknown one is ignored and earns nothing"
            yield Problem(f"engine.verifier_function[{index}]", name, rule, "use acc", source)
    if not engine.verifier_function:
        rule = "must name at least one verifier: without it every reward is 0"
        yield Problem("engine.verifier_function", [], rule, "set it to [acc]", source)
    count = len(engine.verifier_function)
    if len(engine.verifier_weight) != count:
        rule, remedy = f"must have one weight for each of the {count} functions", f"set it to {[1.0] * count}"
        yield Problem(
            "engine.verifier_weight", list(engine.verifier_weight), rule, remedy, "rule_verifier.py"
        )
    types = verifiers.prompt_types(engine.mindspeed_rl_home)
    if engine.prompt_type not in types:
        rule = f"must be one of {', '.join(types)}"
        yield Problem("engine.prompt_type", engine.prompt_type, rule, "use qwen_r1", str(contract.TEMPLATES))


def notes(job: Job) -> Iterator[str]:
    """Yield notes about the layout of the reference, the loss and the learning rate."""
    engine, train = job.engine, job.train
    if engine.use_integrated_worker:
        yield "integrated worker: the reference runs in layout.train, layout.reference changes nothing"
    micro_batches = job.layout.train.micro_batch_num
    if micro_batches != job.layout.train.pipeline_stage:
        yield (
            f"layout.train.micro_batch_num={micro_batches} changes nothing: the number of micro-batches "
            "follows from engine.micro_batch_size"
        )
    if engine.micro_batch_size > 1:
        yield (
            f"engine.micro_batch_size={engine.micro_batch_size}: losses are means over the tokens of a "
            f"micro-batch ({_LOSS}); train.loss_type=grpo holds exactly with 1"
        )
    if train.schedule != "constant" and job.decay_steps < train.steps:
        yield (
            f"train.schedule={train.schedule}: the rate reaches train.final_share after about "
            f"{job.decay_steps:g} of {train.steps} steps, for MindSpeed-RL's schedule counts completions "
            "against a horizon of prompts (megatron_config.py has no lr_decay_iters); use constant"
        )
