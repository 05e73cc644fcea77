"""What MindSpeed-RL checks when the cards are already taken, what it skips silently, and what it can't do.

Each rule names its place in Ascend/MindSpeed-RL at 05a90d7; 667a547 has the same unless it says otherwise.
Rules that every engine shares, heads and equal card counts among them, stand in pipeline/config/rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from stages.base.errors import Problem, as_override
from stages.engines.mindspeed_rl import contract, recipe
from stages.engines.mindspeed_rl.config import VERSIONS
from stages.engines.mindspeed_rl.job import Job
from stages.models.families import family_of

_VALIDATE = "validate_config.py"


def check(job: Job, sft_enabled: bool, nodes: int) -> list[Problem]:
    """Every rule that a run breaks; empty when it can be rendered.

    Args:
        job: the settings.
        sft_enabled: whether the local sft stage is asked for.
        nodes: machines of the Ray cluster.
    """
    return [
        *_model(job, sft_enabled),
        *_window(job),
        *_layouts(job),
        *_resources(job),
        *_batches(job, nodes),
        *_lengths(job),
        *recipe.check(job),
    ]


def notes(job: Job) -> list[str]:
    """What a reader of the plan should know, and no rule forbids."""
    engine, found = job.engine, []
    if engine.mindspeed_rl_home is None:
        assumed = f": contract {VERSIONS[0]} is assumed" if job.version == VERSIONS[0] else ""
        found.append(f"engine.mindspeed_rl_home is not set{assumed}; run refuses without it")
    elif place := contract.broken_port(engine.mindspeed_rl_home):
        found.append(f"engine.mindspeed_rl_home: {place} {contract.BROKEN}; {contract.MENDED}")
    if engine.mindspeed_rl_home and not (Path(engine.mindspeed_rl_home) / contract.TEMPLATES).exists():
        found.append(
            f"engine.mindspeed_rl_home has no {contract.TEMPLATES}: evaluate asks the bare questions"
        )
    if engine.use_integrated_worker:
        found.append(
            "integrated worker: the reference runs in layout.train, layout.reference changes nothing"
        )
    if not any("LD_PRELOAD" in env for env in (engine.env, engine.runtime_env)):
        found.append(
            "engine.env.LD_PRELOAD is not set: upstream preloads libjemalloc.so.2 to spare host memory"
        )
    if engine.micro_batch_size > 1:
        found.append(
            f"engine.micro_batch_size={engine.micro_batch_size}: losses are means over the tokens of a "
            "micro-batch (grpo_actor_loss_func.py); train.loss_type=grpo holds exactly with 1"
        )
    found.append(
        f"Ray reserves {engine.cpus_per_npu} CPUs beside each card (engine.cpus_per_npu); on a machine "
        "with fewer the run waits for ever"
    )
    return found


def _model(job: Job, sft_enabled: bool) -> Iterator[Problem]:
    if job.model.qkv_concat:
        yield Problem(
            "model.qkv_concat",
            True,
            "must be false: its convert_ckpt.py reads separate weights",
            "set it to false",
        )
    if sft_enabled:
        yield Problem(
            "sft.enabled",
            True,
            "engine=mindspeed_rl starts from the fetched weights (ours: its sft stage is skipped)",
            "set sft.enabled=false, or train with engine=local",
        )
    degree = job.actor.model_parallel
    if job.model.vocab_size % degree:
        yield Problem(
            "layout.train.model_parallel",
            degree,
            f"must divide vocab_size={job.model.vocab_size} (megatron/core/tensor_parallel/layers.py)",
            f"use {math.gcd(job.model.vocab_size, degree)}",
        )


def _window(job: Job) -> Iterator[Problem]:
    if job.version != "667a547":
        return
    for path, value, wanted, what in (
        ("engine.use_remove_padding", job.engine.use_remove_padding, False, "remove_padding"),
        ("layout.train.opt_offload", job.actor.opt_offload, False, "swap_optimizer"),
        ("layout.train.context_parallel", job.actor.context_parallel, 1, "context_parallel_algo"),
    ):
        if value != wanted:
            yield Problem(
                path,
                value,
                f"must be {as_override(wanted)} with contract 667a547, which has no {what} "
                "(config_cls: megatron_config.py, rl_config.py)",
                f"set it to {as_override(wanted)}, or check out 05a90d7",
            )
    every, steps = job.train.checkpoint_every, job.train.steps
    if every > 0 and steps % every:
        yield Problem(
            "train.checkpoint_every",
            every,
            f"must divide train.steps={steps} with contract 667a547: before 2025-06-14 it saves nothing "
            "at the end (grpo_trainer_hybrid.py, fit)",
            f"use {math.gcd(every, steps)}",
        )


def _layouts(job: Job) -> Iterator[Problem]:
    generate, train, model = job.layout.generate, job.actor, job.model
    for key in ("pipeline_stage", "context_parallel"):
        if getattr(generate, key) > 1:
            yield Problem(
                f"layout.generate.{key}",
                getattr(generate, key),
                f"generation is tensor and data parallel only ({_VALIDATE}: pipeline_parallel for vllm)",
                "set it to 1 and raise model_parallel or data_parallel",
            )
    for role in ("train", "generate"):
        if job.layout.role(role).expert_parallel > 1:
            yield Problem(
                f"layout.{role}.expert_parallel",
                job.layout.role(role).expert_parallel,
                f"{family_of(model).title} has no experts (ours: stages/models)",
                "set it to 1",
            )
    # Key-value heads need not divide: MindSpeed-LLM repeats them before the exchange unless it is told not to
    # (a2c0733b9, features_manager/context_parallel/ulysses_context_parallel.py: the default is to repeat;
    # training/arguments.py asks them to divide only without), and nothing that is rendered tells it not to.
    split = train.model_parallel * train.context_parallel
    if train.context_parallel > 1 and model.num_attention_heads % split:
        yield Problem(
            "layout.train.context_parallel",
            train.context_parallel,
            f"model_parallel x context_parallel = {split} must divide num_attention_heads="
            f"{model.num_attention_heads} (MindSpeed's ulysses_context_parallel.py, validate_args)",
            f"use {math.gcd(model.num_attention_heads // train.model_parallel, train.context_parallel)}",
        )
    if train.vocab_emb_dp:
        yield Problem(
            "layout.train.vocab_emb_dp",
            True,
            "must be false: Megatron always splits the vocabulary (megatron/core/tensor_parallel/layers.py)",
            "set it to false",
        )
    if train.opt_offload and not train.enable_parallel_optimizer:
        yield Problem(
            "layout.train.opt_offload",
            True,
            "needs layout.train.enable_parallel_optimizer=true (docs/zh/features/swap_optimizer.md)",
            "set both to true, or layout.train.opt_offload=false",
        )
    parts = train.context_parallel * train.model_parallel
    if job.seq_length % parts:
        yield Problem(
            "engine.seq_length",
            job.seq_length,
            f"must be a multiple of {parts}, the parts that layout.train cuts a sequence into "
            "(MindSpeed's ulysses_context_parallel.py; megatron/core/tensor_parallel/mappings.py)",
            "leave it null",
        )


def _resources(job: Job) -> Iterator[Problem]:
    engine = job.engine
    for key in ("reference_npus", "reward_npus"):
        value = getattr(engine, key)
        if value is None:
            continue
        if engine.use_integrated_worker:
            yield Problem(
                f"engine.{key}",
                value,
                f"must be null with integrated workers ({_VALIDATE})",
                "set engine.use_integrated_worker=false",
            )
        elif value % job.unit:
            yield Problem(
                f"engine.{key}",
                value,
                f"must be a multiple of layout.train's model_parallel x pipeline_stage x context_parallel = "
                f"{job.unit} ({_VALIDATE}, _validate_resource)",
                f"use {-(-value // job.unit) * job.unit}",
            )
    if (engine.reward_npus is None) != (engine.reward_load is None):
        missing = "reward_load" if engine.reward_load is None else "reward_npus"
        rule = f"a reward model needs both reward_npus and reward_load ({_VALIDATE})"
        yield Problem(f"engine.{missing}", None, rule, f"set engine.{missing}, or the other one to null")


def _batches(job: Job, nodes: int) -> Iterator[Problem]:
    prompts, group = job.train.prompts_per_step, job.rollout.num_generations
    replicas: list[tuple[str, int]] = [
        ("layout.train.data_parallel", job.actor.data_parallel),
        ("layout.generate.data_parallel", job.layout.generate.data_parallel),
    ]
    if job.reference_npus:
        replicas.append(("replicas of engine.reference_npus", max(1, job.reference_npus // job.unit)))
    if job.reward_npus:
        replicas.append(("replicas of engine.reward_npus", max(1, job.reward_npus // job.unit)))
    if job.version == "05a90d7" and not job.reward_npus:
        replicas.append(("machines, each with a process that scores", nodes))
    for name, count in replicas:
        if prompts % count:
            yield Problem(
                "train.prompts_per_step",
                prompts,
                f"must be a multiple of {name} = {count} ({_VALIDATE}: global_batch_size)",
                f"use {-(-prompts // count) * count}",
            )
    micro, mini = job.engine.micro_batch_size, job.mini_batch_size
    for name, count in replicas[:1] + replicas[2:]:
        if "machines" not in name and prompts % count == 0 and prompts // count * group % micro:
            yield Problem(
                "engine.micro_batch_size",
                micro,
                f"must divide the {prompts // count * group} completions of a replica ({name}; {_VALIDATE})",
                f"use {math.gcd(prompts // count * group, micro)}",
            )
    if prompts % mini:
        yield Problem(
            "engine.mini_batch_size",
            mini,
            f"must divide train.prompts_per_step={prompts}: the rest would be a smaller update of the same "
            "weight (base_training_engine.py, _split_batches)",
            "leave it null",
        )
    elif mini * group % (job.actor.data_parallel * micro):
        yield Problem(
            "engine.mini_batch_size",
            mini,
            f"its {mini * group} completions must be a multiple of layout.train.data_parallel x "
            f"engine.micro_batch_size = {job.actor.data_parallel * micro} (actor_hybrid_worker.py)",
            "leave it null, or lower engine.micro_batch_size",
        )
    forward = job.engine.forward_micro_batch_size
    if forward is not None and job.samples // job.actor.data_parallel % forward:
        yield Problem(
            "engine.forward_micro_batch_size",
            forward,
            f"must divide the {job.samples // job.actor.data_parallel} completions of one replica "
            "(base_training_engine.py)",
            "leave it null",
        )


def _lengths(job: Job) -> Iterator[Problem]:
    if job.sample_length > job.seq_length:
        yield Problem(
            "engine.seq_length",
            job.seq_length,
            f"tokenize.max_prompt_length + rollout.max_tokens = {job.sample_length} must fit ({_VALIDATE})",
            "leave it null, or shorten them",
        )
    if job.seq_length > job.max_model_len:
        yield Problem(
            "engine.max_model_len",
            job.max_model_len,
            f"must be at least seq_length={job.seq_length} ({_VALIDATE}: Sequence length exceeds vLLM)",
            "leave it null",
        )
    longest = max(job.seq_length, job.max_model_len)
    if longest > job.model.max_position_embeddings:
        yield Problem(
            "engine.seq_length",
            longest,
            f"at most model.max_position_embeddings={job.model.max_position_embeddings} (vllm config.py)",
            "shorten tokenize.max_prompt_length or rollout.max_tokens",
        )
