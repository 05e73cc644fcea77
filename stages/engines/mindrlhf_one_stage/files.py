"""Files, arguments and environment of grpo_one_stage.py: files.yaml and the values computed for it."""

from typing import Any

from stages.engines.mindformers.model_sections import (
    parallel_config,
    predicting,
    recompute_config,
    sampling,
    training,
)
from stages.engines.mindrlhf.job import Paths
from stages.engines.mindrlhf_one_stage.variant import TEMPLATE, Job
from stages.engines.template import fill
from stages.models.families import network_of

Values = dict[str, Any]


def files(job: Job, paths: Paths) -> dict[str, Values]:
    """Return the content of the files: grpo_config, finetune and predict; arguments and environment."""
    engine, train, rollout = job.engine, job.train, job.rollout
    sampled = sampling(rollout, engine.block_size, engine.num_blocks)
    derived = {
        "end_lr": train.learning_rate * train.final_share,
        "sync_ref_model": train.ref_model_sync_steps > 0,
        "ref_model_sync_steps": train.ref_model_sync_steps or 1,
        "training": {
            **training(job.model, job.layout.train, job.seq_length),
            "max_decode_length": rollout.max_tokens,
            "do_sample": False,
            "compute_in_2d": True,
        },
        "predicting": {
            **predicting(job.model, job.layout.generate, job.seq_length, sampled),
            "batch_size": engine.chunk_size,
            "param_init_type": job.model.param_init_type,
        },
        "arch": dict(network_of(job.model).arch),
        "train_parallel": parallel_config(job.layout.train),
        "generate_parallel": parallel_config(job.layout.generate),
        "recompute": recompute_config(job.model, job.layout.train),
    }
    return fill(TEMPLATE, job, paths, derived)
