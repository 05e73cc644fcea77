"""Rules of mindrlhf that also hold for its one-stage script; sources as in rules.py."""

import math
from collections.abc import Callable
from typing import Any

from stages.base.rules import Broken, Rules, Test, at_least, at_most, be, multiple_of
from stages.engines.layout_rules import MINDFORMERS, Laid, sequence_parts
from stages.engines.mindrlhf.job import MindrlhfJob
from stages.engines.plain_grpo import LOSS, plain

RULES = Rules[MindrlhfJob]("mindrlhf_common")
RULES.must(
    "model.qkv_concat", be(False), "grpo_trainer.py, rename_safetensors_weights; finetune_qwen2_5_7b.yaml"
)
RULES.include(MINDFORMERS, lambda job: Laid(job.model, {role: job.layout.role(role) for role in job.roles}))
RULES.must(
    "layout.generate.pipeline_stage",
    be(1, "generation must not be pipelined", "set it to 1 and raise model_parallel or data_parallel"),
    "infer_worker.py, reshard_optimizer.py; one stage: its README.md",
)
RULES.must(
    "layout.train.opt_offload",
    be(
        False,
        "the optimizer of this setting needs the norm of the gradients (mindrlhf/utils/adam.py:161), which "
        "the training cell does not pass to it",
        "set it to false; between updates mindrlhf always moves the optimizer to the host",
    ),
    "mindformers wrapper/wrapper.py:281; at 0cd087455 and before mindrlhf/wrapper/wrapper.py, enable_offload",
)
RULES.must(
    "layout.train.micro_batch_num",
    at_least(
        "layout.train.pipeline_stage",
        "pipeline_stage",
        "so many micro-batches fill the pipeline",
        "set it to pipeline_stage, or null",
    ),
    "MindSpore's cell_wrapper.py, PipelineCell",
)
RULES.must(
    "engine.seq_length",
    multiple_of(
        lambda job, role: sequence_parts(job.layout.role(role)),
        why="the parts that a layout cuts a sequence into",
        remedy="leave it null",
    ),
    "ours: MindSpore cuts evenly",
    each=lambda job: job.roles,
    value=lambda job, role: job.seq_length,
)
RULES.must(
    "engine.seq_length",
    at_least(
        lambda job: job.sample_length,
        "the longest sample of tokenize.max_prompt_length and rollout.max_tokens",
        "longer samples are cut, or end the run",
        "leave it null, or shorten them",
    ),
    "grpo_experience_maker.py, create_pack_group; one stage: utils/configs.py, combine_grpo_config",
    name="longest_sample",
    value=lambda job: job.seq_length,
)
RULES.must(
    "engine.seq_length",
    at_most(
        "model.max_position_embeddings",
        remedy="shorten tokenize.max_prompt_length or rollout.max_tokens, or lower engine.pack_num; of "
        "fewer than 2048 positions train with engine=local",
    ),
    "ours: config.json says what it was trained for",
    name="positions",
    value=lambda job: job.seq_length,
)
RULES.must(
    "train.prompts_per_step",
    multiple_of(lambda job: job.batch, "engine.chunk_size x layout.generate.data_parallel"),
    "grpo_experience_maker.py, _init_grpo_experience_dataset; one stage: grpo_trainer.py, make_experience",
)


def fills_batches(job: MindrlhfJob) -> bool:
    """Return True if prompts_per_step is valid, so that the rows of a step are known."""
    return job.train.prompts_per_step % job.batch == 0


def multiple_of_rows(rows: Callable[[Any], int], what: str) -> Test:
    """Require that the rows of a step are a multiple of `rows`; the remainder would be lost silently.

    Args:
        rows: function of the job.
        what: description of so many rows, and what happens to the remainder.
    """

    def test(value: int, job: MindrlhfJob) -> Broken:
        """Require that the rows of a step fill their batches."""
        divisor = rows(job)
        if job.packs % divisor == 0:
            return None
        samples = job.pack_num * divisor
        step = math.lcm(job.batch, samples // math.gcd(samples, job.rollout.num_generations))
        return (
            f"its {job.packs} rows must be a multiple of {divisor}, {what}",
            f"use prompts_per_step={-(-value // step) * step}, or another batch size",
        )

    return test


RULES.must(
    "train.prompts_per_step",
    multiple_of_rows(
        lambda job: job.rows_per_update,
        "an update (engine.batch_size x data_parallel, in a pipeline x micro_batch_num): the remainder is "
        "dropped",
    ),
    "train_worker.py; one stage: utils/configs.py, init_grpo_dataset",
    name="updates",
    unless=("prompts_per_step",),
)
plain(
    RULES,
    "mindrlhf",
    {
        "grpo_models.py": f"loss_type {LOSS}",
        "grpo_trainer.py": "scale_advantages resample_rounds validate_every lora_rank max_kl",
        "train_worker.py; grpo_one_stage.py": "resume_from loggers",
    },
)
RULES.must("train.max_grad_norm", be(1.0, "the training cell clips at 1.0"), "wrapper.py, max_grad_norm")
RULES.must(
    "train.ref_model_mixup_alpha",
    be(1.0, "mindrlhf copies the policy as it is"),
    "transform_worker.py, sync_ref_model; grpo_one_stage.py",
    when=lambda job: job.train.ref_model_sync_steps > 0,
)
