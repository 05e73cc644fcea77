"""The files that grpo_one_stage.py reads, its arguments and its environment.

Source: mindrlhf 2d0e84d to 9202c8f, mindrlhf/configs/grpo_configs.py and model_configs/qwen_grpo. Comments
explain the values that differ from upstream's defaults.
"""

from typing import Any

from stages.engines.mindformers.files import (
    parallel_config,
    predicting,
    recompute_config,
    sampling,
    training,
)
from stages.engines.mindrlhf.job import Paths
from stages.engines.mindrlhf_one_stage.job import Job
from stages.models.families import network_of

Values = dict[str, Any]


def grpo_config(job: Job) -> Values:
    """Return fields of GRPOConfig.

    The script takes paths from arguments, and lengths from the generation's YAML.
    """
    engine, train = job.engine, job.train
    return {
        "beta": train.beta,
        "num_generations": job.rollout.num_generations,
        "epochs": engine.epochs,
        "batch_size": engine.batch_size,
        "optimizer": "adamw",
        "beta1": train.adam_beta1,
        "beta2": train.adam_beta2,
        "eps": train.adam_epsilon,
        "num_rollouts": job.num_rollouts,
        "chunk_size": engine.chunk_size,
        "sink_size": 1,  # one update; with the default 2, updates that do not fill it are dropped silently
        "micro_batch_interleaved": engine.micro_batch_interleave_num,
        "start_lr": train.learning_rate,
        "end_lr": train.learning_rate * train.final_share,
        "warmup_step": train.warmup_steps,
        "decay_steps": train.steps,
        "opt_offload": job.layout.train.opt_offload,
        "sync_ref_model": train.ref_model_sync_steps > 0,
        "ref_model_sync_steps": train.ref_model_sync_steps or 1,
    }


def finetune(job: Job) -> Values:
    """Return the file of --sft_path_train."""
    layout = job.layout.train
    model_config = {
        **training(job.model, layout, job.seq_length),
        "max_decode_length": job.rollout.max_tokens,
        "do_sample": False,
        "compute_in_2d": True,
    }
    return {
        "run_mode": "finetune",
        "use_parallel": True,
        "model": {"model_config": model_config, "arch": dict(network_of(job.model).arch)},
        "parallel_config": parallel_config(layout),
        "recompute_config": recompute_config(job.model, layout),
    }


def predict(job: Job) -> Values:
    """Return the file of --sft_path_infer: generation, reference, and the context of the process."""
    engine, layout = job.engine, job.layout.generate
    sampled = sampling(job.rollout, engine.block_size, engine.num_blocks)
    model_config = {
        **predicting(job.model, layout, job.seq_length, sampled),
        "batch_size": engine.chunk_size,
        "param_init_type": job.model.param_init_type,
    }
    return {
        "run_mode": "predict",
        "use_parallel": True,
        "seed": job.seed,
        "model": {"model_config": model_config, "arch": dict(network_of(job.model).arch)},
        "parallel_config": parallel_config(layout),
        "parallel": {
            "parallel_mode": 1,
            "gradients_mean": False,
            "enable_alltoall": False,
            "full_batch": True,
            "search_mode": "sharding_propagation",
            "enable_parallel_optimizer": False,
            "strategy_ckpt_config": {"save_file": "./ckpt_strategy.ckpt", "only_trainable_params": False},
        },
        "context": {
            "mode": 0,
            "device_target": "Ascend",
            "max_call_depth": 10000,
            "max_device_memory": f"{engine.device_memory_gib}GB",
            "save_graphs": False,
            "device_id": 0,
            "ascend_config": {"precision_mode": "must_keep_origin_dtype"},
        },
    }


def arguments(job: Job, paths: Paths) -> Values:
    """Return the arguments of the script, whose names are job.ARGUMENTS."""
    return {
        "sft_path_infer": paths.configs / "predict.yaml",
        "sft_path_train": paths.configs / "finetune.yaml",
        "vocab_path": paths.tokenizer / "vocab.json",
        "merges_file_path": paths.tokenizer / "merges.txt",
        "mind_dataset_dir": paths.dataset,
        "save_ckpt_dir": paths.checkpoints,
        "use_parallel": True,
        "load_sft_checkpoint_infer": paths.generate,
        "load_sft_checkpoint_train": paths.actor,
        "load_ref_checkpoint": paths.reference,
        "enable_compile_cache": job.engine.enable_compile_cache,
        **({} if job.engine.save_data_file is None else {"save_data_file": job.engine.save_data_file}),
        "pre_num_generations": 1,
        "pre_store_data": job.rows_per_update,  # rows of one update, for the trial that compiles the graph
    }


def environment(job: Job) -> dict[str, str]:
    """Return the variables of the process."""
    variables = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # the checkout stays as it is
        "GLOG_v": "3",
        "HCCL_EXEC_TIMEOUT": "7200",
        "MS_ENABLE_LCCL": "off",
        "MS_ALLOC_CONF": "memory_tracker:False,enable_vmm:false",
    }
    if job.engine.mindformers_home is not None:
        variables["MINDFORMERS_PATH"] = job.engine.mindformers_home
    return variables
