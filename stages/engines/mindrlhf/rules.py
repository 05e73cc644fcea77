"""What mindrlhf asserts, and what it does not assert and then gets silently wrong.

Each rule names its place in mindrlhf e8a8fc1; 0cd087455 and each family's tutorial do the same unless the
rule says otherwise. Rules that every engine shares, heads and equal card counts among them, stand in
pipeline/config/rules.py; those of layouts in layout_rules.py, those of generation in generation_rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stages.base.errors import Problem, as_override
from stages.engines.mindrlhf import generation_rules, layout_rules
from stages.engines.mindrlhf.job import SHORTEST_ROW, Job
from stages.models.families import family_of, with_weights


def check(job: Job, sft_enabled: bool) -> list[Problem]:
    """Every rule that a run breaks; empty when it can be rendered."""
    return [
        *_formats(job, sft_enabled),
        *_family(job),
        *layout_rules.check(job),
        *generation_rules.check(job),
        *_packs(job),
        *_samples(job),
        *_lengths(job),
        *_algorithm(job),
        *_schedule(job),
        *_reward(job),
    ]


def _formats(job: Job, sft_enabled: bool) -> Iterator[Problem]:
    engine = job.engine
    if engine.load_ckpt_format == "ckpt" and engine.use_vllm:
        yield Problem(
            "engine.use_vllm",
            engine.use_vllm,
            "must be 0 with engine.load_ckpt_format=ckpt (infer_worker.py: vLLM loads safetensors only)",
            "use hf_safetensors or ms_safetensors; or engine.use_vllm=0 with layout.generate.data_parallel "
            "of at least 2",
        )
    if job.model.qkv_concat:
        yield Problem(
            "model.qkv_concat",
            True,
            "must be false (grpo_trainer.py, rename_safetensors_weights)",
            "set it to false",
        )
    if sft_enabled:
        yield Problem(
            "sft.enabled",
            True,
            "engine=mindrlhf starts from the fetched weights (ours: its sft stage is skipped)",
            "set sft.enabled=false, or train with engine=local",
        )


def _family(job: Job) -> Iterator[Problem]:
    family, engine = family_of(job.model), job.engine
    if engine.load_ckpt_format == "ckpt" and family.weights is None:
        yield Problem(
            "engine.load_ckpt_format",
            "ckpt",
            f"must not be ckpt for {family.title} (ours: convert and split know {with_weights()} only)",
            "use ms_safetensors with weights that mindformers' own convert_weight.py made",
        )
    if job.version not in (job.tutorial.contracts or (job.version,)):
        asked = " or ".join(job.tutorial.contracts)
        yield Problem(
            "engine.contract",
            job.version,
            f"must be {asked} for {family.title}: {job.tutorial.main} of other versions does not run",
            f"check out {asked}",
        )


def _packs(job: Job) -> Iterator[Problem]:
    """What is asked of rows that hold several samples."""
    pack_num, packed = job.engine.pack_num, job.engine.pack_num * job.sample_length
    if pack_num > 1 and not job.tutorial.masks_samples:
        yield Problem(
            "engine.pack_num",
            pack_num,
            f"must be 1 for {family_of(job.model).title}: its network is not told where a sample ends, so "
            "that packed samples see each other (grpo_models.py:207)",
            "set it to 1",
        )
    elif (
        packed > job.seq_length >= job.sample_length
        and math.lcm(*(count for count, _, _ in _batches(job))) > 1
    ):
        yield Problem(
            "engine.seq_length",
            job.seq_length,
            f"{pack_num} of the longest samples, {packed} tokens, must fit: else the number of packs varies "
            "from step to step, and those that fill no batch are dropped, or keep log-probabilities of 0 "
            "(grpo_experience_maker.py, create_pack_group and compute_ref_log_probs)",
            f"leave it null, use at least {packed}, or lower engine.pack_num",
        )


def _samples(job: Job) -> Iterator[Problem]:
    """Rows that don't fill a batch are dropped, silently (train_worker.py, drop_remainder)."""
    train, engine, layout = job.train, job.engine, job.layout
    batch = engine.chunk_size * layout.generate.data_parallel
    if train.prompts_per_step % batch:
        yield Problem(
            "train.prompts_per_step",
            train.prompts_per_step,
            f"must be a multiple of engine.chunk_size x layout.generate.data_parallel = {batch} "
            "(grpo_experience_maker.py, _init_grpo_experience_dataset)",
            f"use {-(-train.prompts_per_step // batch) * batch}",
        )
        return
    if job.samples % engine.pack_num:
        yield Problem(
            "engine.pack_num",
            engine.pack_num,
            f"must divide the {job.samples} samples of a step (grpo_experience_maker.py, create_pack_group)",
            f"use {math.gcd(job.samples, engine.pack_num)}",
        )
    update = job.packs_per_update
    if job.packs < update:
        yield Problem(
            "train.prompts_per_step",
            train.prompts_per_step,
            f"{job.packs} packs a step are fewer than the {update} of one update ({_update(job)}): "
            "mindrlhf would make no update at all and say nothing (train_worker.py, train)",
            "raise prompts_per_step or rollout.num_generations, or lower engine.batch_size",
        )
        return
    for divisor, what, source in _batches(job):
        if job.packs % divisor:
            yield Problem(
                "train.prompts_per_step",
                train.prompts_per_step,
                f"its {job.packs} packs must be a multiple of {divisor}, {what}: {source}",
                f"use prompts_per_step={_enough(job, batch, divisor)}, or another batch size",
            )


def _batches(job: Job) -> tuple[tuple[int, str, str], ...]:
    """What the packs of a step must fill: packs, what takes them, and what becomes of the rest."""
    engine, layout = job.engine, job.layout
    return (
        (job.packs_per_update, f"an update ({_update(job)})", "the remainder is dropped, train_worker.py"),
        (
            engine.ref_model_batch_size * layout.reference.data_parallel,
            "a reference batch (engine.ref_model_batch_size x layout.reference.data_parallel)",
            "the tail's log-probabilities stay 0 (ref_worker.py, compute_ref_log_probs)",
        ),
        (
            engine.batch_size * layout.train.data_parallel,
            "an old-policy batch (engine.batch_size x layout.train.data_parallel)",
            "the tail's log-probabilities stay 0 (grpo_experience_maker.py, _generate_old_logps)",
        ),
    )


def _update(job: Job) -> str:
    """Packs of an update, told."""
    pipelined = job.layout.train.pipeline_stage > 1
    return "engine.batch_size x data_parallel" + (" x micro_batch_num" if pipelined else "")


def _enough(job: Job, batch: int, divisor: int) -> int:
    """The next number of prompts whose packs `divisor` divides."""
    samples = job.engine.pack_num * divisor
    step = math.lcm(batch, samples // math.gcd(samples, job.rollout.num_generations))
    return -(-job.train.prompts_per_step // step) * step


def _lengths(job: Job) -> Iterator[Problem]:
    if job.sample_length > job.seq_length:
        yield Problem(
            "engine.seq_length",
            job.seq_length,
            f"tokenize.max_prompt_length + rollout.max_tokens + 1 = {job.sample_length} must fit: "
            "longer samples are cut, or end the run (grpo_experience_maker.py, create_pack_group)",
            "leave it null, or shorten them",
        )
    if job.seq_length < job.shortest_row:
        yield Problem(
            "engine.seq_length",
            job.seq_length,
            f"must be at least {SHORTEST_ROW}: rows that hold several samples take a compressed mask of that "
            "size, and mindformers refuses shorter ones (modules/transformer/transformer.py:1261)",
            f"leave it null, or set it to {SHORTEST_ROW}: shorter samples are padded",
        )
    if job.seq_length > job.model.max_position_embeddings:
        yield Problem(
            "engine.seq_length",
            job.seq_length,
            f"at most model.max_position_embeddings={job.model.max_position_embeddings} "
            "(ours: config.json says what it was trained for)",
            "shorten tokenize.max_prompt_length or rollout.max_tokens, or lower engine.pack_num"
            if job.model.max_position_embeddings >= job.shortest_row
            else f"mindrlhf trains no model of fewer than {SHORTEST_ROW} positions: use engine=local",
        )


def _algorithm(job: Job) -> Iterator[Problem]:
    train = job.train
    for key, wanted, why in (
        (
            "loss_type",
            "grpo",
            "mindrlhf averages within each completion, then over completions (grpo_models.py)",
        ),
        (
            "scale_advantages",
            True,
            "mindrlhf always divides by the group's deviation (grpo_experience_maker.py)",
        ),
        ("max_grad_norm", 1.0, "mindformers' training cell clips at 1.0 (wrapper.py, max_grad_norm)"),
        ("importance_sampling_level", "token", "mindrlhf weighs token by token (grpo_models.py)"),
        ("use_bias_correction_kl", False, "mindrlhf does not correct its KL term (grpo_models.py)"),
        (
            "mask_truncated_completions",
            False,
            "mindrlhf trains on completions that were cut off, too (grpo_models.py)",
        ),
        ("resample_rounds", 0, "mindrlhf samples each step once (grpo_trainer.py)"),
        ("validate_every", 0, "mindrlhf has no check on held-out prompts (grpo_trainer.py); evaluate has"),
        ("loggers", (), "mindrlhf logs to TensorBoard alone (grpo_trainer.py, _init_tensorboard)"),
        ("max_kl", None, "mindrlhf does not stop by KL (grpo_trainer.py)"),
        ("resume_from", None, "mindrlhf goes on from its own checkpoints only (train_worker.py)"),
    ):
        if getattr(train, key) != wanted:
            yield Problem(
                f"train.{key}",
                getattr(train, key),
                f"must be {as_override(wanted)}: {why}",
                f"set it to {as_override(wanted)}",
            )
    if train.ref_model_sync_steps and train.ref_model_mixup_alpha != 1.0:
        yield Problem(
            "train.ref_model_mixup_alpha",
            train.ref_model_mixup_alpha,
            "must be 1.0: mindrlhf copies the policy as it is (transform_worker.py, sync_ref_model)",
            "set it to 1.0",
        )
    if train.checkpoint_every < 1:
        yield Problem(
            "train.checkpoint_every",
            train.checkpoint_every,
            "must be at least 1 (grpo_trainer.py, save_ckpt_interval)",
            "set it to the steps between checkpoints",
        )


def _schedule(job: Job) -> Iterator[Problem]:
    train = job.train
    if train.schedule == "constant" or train.final_share == 1:
        constant = train.schedule == "constant"
        yield Problem(
            "train.schedule" if constant else "train.final_share",
            train.schedule if constant else train.final_share,
            "the learning rate must fall: mindrlhf builds a CosineDecayLR whatever the schedule is "
            "(mindrlhf/utils/utils.py, LearningRate), which refuses a last rate that equals the first",
            "use train.schedule=linear with train.final_share=0.99 and a large train.steps for a rate that "
            "hardly falls",
        )
    if job.engine.full_monitor:
        yield Problem(
            "engine.full_monitor",
            True,
            "must be false: e8a8fc1 reads old_log_ratio from GRPOModel, which has none (grpo_models.py:377), "
            "and dies in the first update; 0cd087455 has no such key (grpo_configs.py). Neither tells KL and "
            "clip share",
            "set it to false",
        )


def _reward(job: Job) -> Iterator[Problem]:
    for i, name in enumerate(job.reward.functions):
        if name in job.verifiers:
            continue
        rule = f"mindrlhf has no such reward (grpo_experience_maker.py); it has {', '.join(job.verifiers)}"
        if name == "accuracy":
            rule = (
                "mindrlhf replaces accuracy_reward by qwen_accuracy_reward for Qwen models, which counts "
                "only numbers in \\boxed{} (grpo_experience_maker.py, _init_reward_fn)"
            )
        remedy = "use reward=boxed, or train with engine=local"
        if ":" in name:
            remedy += (
                "; or write it into your checkout, as qwen_accuracy_reward (mindrlhf/reward/reward_fn.py)"
            )
        yield Problem(f"reward.functions[{i}]", name, rule, remedy)
