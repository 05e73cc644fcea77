"""What grpo_one_stage.py needs and does not check.

Each rule names its place in mindrlhf 32599d0 to 9202c8f. Rules that every engine shares, heads and equal card
counts among them, stand in pipeline/config/rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stages.base.errors import Problem, as_override
from stages.engines.mindrlhf.layout_rules import cut_sequence, filled_pipeline, model_layout
from stages.engines.mindrlhf.one_stage.config import WINDOWS
from stages.engines.mindrlhf.one_stage.job import ROLES, Job
from stages.models.layouts import warnings

REWARDS = {"accuracy": 1.0, "format": 1.0}
"""The script's own two, each with weight 1 (grpo_one_stage.py, main)."""


def check(job: Job, sft_enabled: bool) -> list[Problem]:
    """Every rule that a run breaks; empty when it can be rendered."""
    return [
        *_model(job, sft_enabled),
        *_layouts(job),
        *_samples(job),
        *_lengths(job),
        *_algorithm(job),
        *_reward(job),
    ]


def notes(job: Job) -> list[str]:
    """What a reader of the plan should know, and no rule forbids."""
    found = []
    if job.engine.mindrlhf_home is None:
        assumed = f"contract {WINDOWS[0]} is assumed; " if job.window == WINDOWS[0] else ""
        found.append(f"engine.mindrlhf_home is not set: {assumed}run refuses without it")
    found += [
        f"grpo_one_stage.py trains engine.epochs={job.engine.epochs} x (the number of training prompts // "
        f"{job.num_rollouts}) steps; train.steps={job.train.steps} is only the length of its learning rate's "
        "decay",
        "it saves weights once, at its end: a run that is stopped begins anew",
        "its reference is laid out as layout.generate; layout.reference is not used",
        "its tokenizer has Qwen2.5's special ids as constants (qwen2_tokenizer.py, ENDOFTEXTID): a model "
        "with another vocabulary is trained with wrong padding, or ends with an IndexError",
    ]
    if job.window == "32599d0":
        found.append(
            "32599d0 loads no weights into its reference (grpo_trainer.py, load_checkpoint: their prefix "
            "is not its network's), so that its KL is one to a random model; 875f92b repairs it"
        )
    for role in ROLES:
        found += [f"layout.{role}: {text}" for text in warnings(job.model, job.layout.role(role))]
    return found


def _model(job: Job, sft_enabled: bool) -> Iterator[Problem]:
    if job.model.qkv_concat:
        yield Problem(
            "model.qkv_concat", True, "must be false (its finetune_qwen2_5_7b.yaml)", "set it to false"
        )
    if sft_enabled:
        rule = "engine=mindrlhf_one_stage starts from the fetched weights (ours: its sft stage is skipped)"
        yield Problem("sft.enabled", True, rule, "set sft.enabled=false, and engine.sft=mindformers")


def _layouts(job: Job) -> Iterator[Problem]:
    if job.layout.train.cards < 2:
        rule = "must be at least 2: get_rank() and cut checkpoints need use_parallel (grpo_one_stage.py)"
        yield Problem("cards", job.layout.train.cards, rule, "choose a layout of several cards")
    if job.layout.generate.pipeline_stage > 1:
        rule = "generation must not be pipelined (its README.md)"
        yield Problem(
            "layout.generate.pipeline_stage", job.layout.generate.pipeline_stage, rule, "set it to 1"
        )
    yield from filled_pipeline(job.layout.train)
    for role in ROLES:
        layout = job.layout.role(role)
        yield from model_layout(job.model, layout, role)
        if layout.enable_parallel_optimizer:
            rule = "must be false: the generation's YAML alone decides (grpo_one_stage.py, build_context)"
            yield Problem(f"layout.{role}.enable_parallel_optimizer", True, rule, "set it to false")
        yield from cut_sequence(job.seq_length, layout, role)


def _samples(job: Job) -> Iterator[Problem]:
    train = job.train
    if job.window != "2d0e84d" and train.prompts_per_step != job.batch:
        yield Problem(
            "train.prompts_per_step",
            train.prompts_per_step,
            f"must be engine.chunk_size x layout.generate.data_parallel = {job.batch}: before 2d0e84d a step "
            "is one batch (grpo_trainer.py, make_experience)",
            f"use {job.batch}",
        )
    elif train.prompts_per_step % job.batch:
        yield Problem(
            "train.prompts_per_step",
            train.prompts_per_step,
            f"must be a multiple of engine.chunk_size x layout.generate.data_parallel = {job.batch} "
            "(grpo_trainer.py, make_experience)",
            f"use {-(-train.prompts_per_step // job.batch) * job.batch}",
        )
    elif job.samples % job.samples_per_update:
        yield Problem(
            "train.prompts_per_step",
            train.prompts_per_step,
            f"its {job.samples} samples must be a multiple of {job.samples_per_update}, an update (engine."
            "batch_size x data_parallel x micro_batch_num): a smaller last one would have another shape than "
            "the compiled graph (utils/configs.py, init_grpo_dataset)",
            f"use rollout.num_generations={_group(job)}, or lower engine.batch_size",
        )


def _group(job: Job) -> int:
    """The next group size with which a step is whole updates."""
    update = job.samples_per_update
    step = update // math.gcd(update, job.train.prompts_per_step)
    return -(-job.rollout.num_generations // step) * step


def _lengths(job: Job) -> Iterator[Problem]:
    if job.sample_length > job.seq_length:
        yield Problem(
            "engine.seq_length",
            job.seq_length,
            f"tokenize.max_prompt_length + rollout.max_tokens = {job.sample_length} must fit: prompts get "
            "what max_decode_length leaves (utils/configs.py, combine_grpo_config)",
            "leave it null, or shorten them",
        )
    if job.seq_length > job.model.max_position_embeddings:
        rule = f"at most model.max_position_embeddings={job.model.max_position_embeddings} (ours: trained so)"
        yield Problem("engine.seq_length", job.seq_length, rule, "shorten tokenize.max_prompt_length")
    blocks = job.engine.chunk_size * -(-job.seq_length // job.engine.block_size)
    if job.engine.num_blocks < blocks:
        rule = f"must be at least {blocks}: chunk_size sequences of {job.seq_length} tokens "
        rule += "(mindformers block_tables.py)"
        yield Problem("engine.num_blocks", job.engine.num_blocks, rule, f"use {blocks}")


def _algorithm(job: Job) -> Iterator[Problem]:
    for key, wanted, why in (
        (
            "loss_type",
            "grpo",
            "the script averages within each completion, then over completions (grpo_models.py)",
        ),
        ("schedule", "cosine", "its rate falls as a cosine (utils/utils.py, LearningRate)"),
        ("scale_advantages", True, "it always divides by the group's deviation (grpo_trainer.py)"),
        ("num_iterations", 1, "it trains once on each step's completions (grpo_one_stage.py)"),
        ("max_grad_norm", 1.0, "its training cell clips at 1.0 (wrapper.py)"),
        ("weight_decay", 0.1, "it decays by 0.1 whatever is asked (utils/configs.py, set_weight_decay)"),
        ("importance_sampling_level", "token", "it weighs token by token (grpo_models.py)"),
        ("use_bias_correction_kl", False, "it does not correct its KL term (grpo_models.py)"),
        (
            "mask_truncated_completions",
            False,
            "it trains on completions that were cut off, too (grpo_models.py)",
        ),
        ("resample_rounds", 0, "it samples each step once (grpo_trainer.py)"),
        ("validate_every", 0, "it has no check on held-out prompts (grpo_one_stage.py); evaluate has"),
        ("max_kl", None, "it does not stop by KL (grpo_trainer.py)"),
        ("resume_from", None, "it cannot go on from a checkpoint (grpo_one_stage.py)"),
    ):
        if getattr(job.train, key) != wanted:
            value = getattr(job.train, key)
            yield Problem(
                f"train.{key}",
                value,
                f"must be {as_override(wanted)}: {why}",
                f"set it to {as_override(wanted)}",
            )
    if job.train.ref_model_sync_steps and job.train.ref_model_mixup_alpha != 1.0:
        alpha = job.train.ref_model_mixup_alpha
        rule = "must be 1.0: the script copies the policy as it is (grpo_one_stage.py)"
        yield Problem("train.ref_model_mixup_alpha", alpha, rule, "set it to 1.0")
    if job.layout.train.opt_offload:
        rule = (
            "must be false: its optimizer wants the norm of the gradients besides (utils/adam.py:161), which "
        )
        rule += "the training cell does not give it (wrapper.py, enable_offload)"
        yield Problem("layout.train.opt_offload", True, rule, "set it to false")
    if job.train.final_share >= 1:
        rule = "must be below 1: its cosine needs a lower end (utils/utils.py, LearningRate)"
        yield Problem("train.final_share", job.train.final_share, rule, "set it to 0.0")
    if job.rollout.min_p is not None:
        rule = "must be null: mindformers' generation knows no min_p (generation_config.py)"
        yield Problem("rollout.min_p", job.rollout.min_p, rule, "set it to null")


def _reward(job: Job) -> Iterator[Problem]:
    if dict(zip(job.reward.functions, job.reward.weights, strict=False)) != REWARDS:
        yield Problem(
            "reward.functions",
            list(job.reward.functions),
            "must be accuracy and format, each with weight 1: no others there (grpo_one_stage.py)",
            "use reward=think, or train with another engine",
        )
