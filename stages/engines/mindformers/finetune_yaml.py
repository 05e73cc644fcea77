"""YAML file of a supervised run, with the keys that mindformers knows.

mindformers raises KeyError for unknown keys of the top level, runner_config, parallel_config and
recompute_config (tools/register/template.py). Source: mindformers 051d65f and 1.6.0,
research/qwen2_5/finetune_qwen2_5_7b_8k.yaml; comments explain the values that differ.
"""

from typing import Any

from stages.engines.mindformers.checkpoints import PREFIXES
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.model_sections import parallel_config, recompute_config, training
from stages.models.families import network_of

Values = dict[str, Any]
SCHEDULES = {
    "constant": "ConstantWarmUpLR",
    "cosine": "CosineWithWarmUpLR",
    "linear": "PolynomialWithWarmUpLR",
}


def finetune(job: Job, paths: Paths, resume: bool) -> Values:
    """Return the complete file."""
    settings, layout = job.mindformers, job.layout
    piped = layout.pipeline_stage > 1
    dataset = _dataset(job, paths)
    return {
        "seed": job.seed,
        "output_dir": str(paths.output),
        "load_checkpoint": str(paths.start),
        "load_ckpt_format": "safetensors",
        "auto_trans_ckpt": job.parallel and not resume,
        "resume_training": resume,
        "run_mode": "finetune",
        "use_parallel": job.parallel,
        "do_eval": False,
        "micro_batch_interleave_num": 1,
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "qwen2_5"},
        "runner_config": {
            "epochs": settings.epochs,
            "batch_size": settings.examples_per_card,
            "sink_mode": True,  # needed to load sliced weights (load_checkpoint_utils.py, build_model)
            "sink_size": 1,
            "gradient_accumulation_steps": 1 if piped else job.micro_batches,
        },
        "runner_wrapper": {
            "type": "MFTrainOneStepCell",
            "scale_sense": {
                "type": "DynamicLossScaleUpdateCell",
                "loss_scale_value": 4096,
                "scale_factor": 1,  # bfloat16 needs no dynamic scaling
                "scale_window": 100000,
            },
            "use_clip_grad": settings.max_grad_norm is not None,
            "max_grad_norm": 1.0 if settings.max_grad_norm is None else settings.max_grad_norm,
        },
        "optimizer": {
            "type": "AdamW",
            "betas": [settings.adam_beta1, settings.adam_beta2],
            "eps": settings.adam_epsilon,
            "learning_rate": settings.learning_rate,
            "weight_decay": settings.weight_decay,
        },
        "lr_schedule": _schedule(job),
        "train_dataset": dataset,
        "train_dataset_task": {"type": "CausalLanguageModelDataset", "dataset_config": dataset},
        "parallel": _parallel(job),
        "parallel_config": {**parallel_config(layout), "micro_batch_num": job.micro_batches if piped else 1},
        "recompute_config": recompute_config(job.model, layout),
        "callbacks": [
            {"type": "MFLossMonitor"},
            {
                "type": "CheckpointMonitor",
                "prefix": PREFIXES["checkpoint"],
                # mindformers always saves at the end; with checkpoint_every=0 only then
                "save_checkpoint_steps": settings.checkpoint_every or 10**9,
                "keep_checkpoint_max": settings.keep_checkpoints,
                "integrated_save": False,
                "async_save": False,
                "checkpoint_format": "safetensors",
            },
        ],
        "context": {
            "mode": 0,
            "device_target": "Ascend",
            "max_call_depth": 10000,
            "max_device_memory": f"{settings.device_memory_gib}GB",
            "save_graphs": False,
            "save_graphs_path": str(paths.root / "graph"),
            "device_id": 0,
            "memory_optimize_level": "O1",
            "jit_config": {"jit_level": "O1"},
            "ascend_config": {"precision_mode": "must_keep_origin_dtype"},
        },
        "model": {"model_config": _model(job), "arch": dict(network_of(job.model).arch)},
        "metric": {"type": "PerplexityMetric"},
    }


def _schedule(job: Job) -> Values:
    settings = job.mindformers
    falls = settings.schedule != "constant" and settings.final_share < 1
    values: Values = {
        "type": SCHEDULES[settings.schedule if falls else "constant"],
        "learning_rate": settings.learning_rate,
        "warmup_steps": settings.warmup_steps,
        "total_steps": -1,  # the complete run
    }
    if falls:
        values["lr_end"] = settings.learning_rate * settings.final_share
    return values


def _dataset(job: Job, paths: Paths) -> Values:
    return {
        # the file: of a directory mindformers would read every MindRecord
        "data_loader": {"type": "MindDataset", "dataset_dir": str(paths.dataset), "shuffle": True},
        "input_columns": ["input_ids", "labels"],  # the order of LlamaForCausalLM.construct's arguments
        "num_parallel_workers": 2,  # ids need no work; more workers than CPUs end the run
        "python_multiprocessing": False,
        "drop_remainder": True,
        "batch_size": job.mindformers.examples_per_card,
        "repeat": 1,
        "numa_enable": False,
        "prefetch_size": 1,
    }


def _parallel(job: Job) -> Values:
    layout = job.layout
    sharing: Values = {
        "gradient_accumulation_shard": False,
        "parallel_optimizer_threshold": layout.parallel_optimizer_threshold_kb,
    }
    if layout.optimizer_weight_shard_size != -1:
        sharing["optimizer_weight_shard_size"] = layout.optimizer_weight_shard_size
    return {
        "parallel_mode": 1,
        "gradients_mean": False,
        "enable_alltoall": False,
        "full_batch": True,
        "search_mode": "sharding_propagation",
        "strategy_ckpt_save_file": "./ckpt_strategy.ckpt",
        "enable_parallel_optimizer": layout.enable_parallel_optimizer,
        "parallel_optimizer_config": sharing,
    }


def _model(job: Job) -> Values:
    return {
        **training(job.model, job.layout, job.seq_length),
        "batch_size": job.mindformers.examples_per_card,
        "do_sample": False,
    }
