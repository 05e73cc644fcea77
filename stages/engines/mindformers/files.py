"""Files and arguments of run_mindformer.py, and sections that mindrlhf's model files have, too.

Source: mindformers 051d65f and 1.6.0, research/qwen2_5/finetune_qwen2_5_7b_8k.yaml; mindrlhf e8a8fc1,
model_configs. Comments explain the values that differ from the shipped files.
"""

from collections.abc import Mapping
from typing import Any

from stages.base.layout import Recompute, RoleLayout
from stages.engines.mindformers.checkpoints import PREFIXES, checkpoints_to_keep
from stages.engines.mindformers.job import Job, Paths
from stages.engines.outside import options
from stages.engines.upstream_keys import Rendered, merged
from stages.grpo.config import RolloutConfig
from stages.models.config import ModelConfig
from stages.models.families import network_of
from stages.models.family import NetworkInputs
from stages.models.layouts import stages_of_layers

Values = dict[str, Any]
SCHEDULES = {
    "constant": "ConstantWarmUpLR",
    "cosine": "CosineWithWarmUpLR",
    "linear": "PolynomialWithWarmUpLR",
}
ONLY_AT_THE_END = 10**9
"""Steps between checkpoints with checkpoint_every=0; mindformers always saves at the end."""
_RESUMES = "=it changes when a run resumes"
_DATASET = "=it is the file that tokenize wrote"
_FAMILY = "=the model's family decides it"
RENDERED: Rendered = {
    "train.seed": "seed",
    "train.output_dir": "=grpoflow reads the checkpoints there",
    "train.load_checkpoint": _RESUMES,
    "train.load_ckpt_format": "=grpoflow writes and reads safetensors",
    "train.auto_trans_ckpt": _RESUMES,
    "train.resume_training": _RESUMES,
    "train.run_mode": "=grpoflow trains",
    "train.use_parallel": "=the layout decides it",
    "train.trainer": _FAMILY,
    "train.runner_config.epochs": "mindformers.epochs",
    "train.runner_config.batch_size": "mindformers.examples_per_card",
    "train.runner_config.gradient_accumulation_steps": "mindformers.batch_size",
    "train.runner_wrapper.use_clip_grad": "mindformers.max_grad_norm",
    "train.runner_wrapper.max_grad_norm": "mindformers.max_grad_norm",
    "train.optimizer.betas": "mindformers.adam_beta1",
    "train.optimizer.eps": "mindformers.adam_epsilon",
    "train.optimizer.learning_rate": "mindformers.learning_rate",
    "train.optimizer.weight_decay": "mindformers.weight_decay",
    "train.lr_schedule.type": "mindformers.schedule",
    "train.lr_schedule.learning_rate": "mindformers.learning_rate",
    "train.lr_schedule.warmup_steps": "mindformers.warmup_steps",
    "train.lr_schedule.warmup_ratio": "mindformers.warmup_ratio",
    "train.micro_batch_interleave_num": "mindformers.micro_batch_interleave_num",
    "train.parallel_config.gradient_aggregation_group": "mindformers.gradient_aggregation_group",
    "train.lr_schedule.lr_end": "mindformers.final_share",
    "train.train_dataset.data_loader": _DATASET,
    "train.train_dataset.input_columns": _DATASET,
    "train.train_dataset.batch_size": "mindformers.examples_per_card",
    "train.train_dataset_task": "=its dataset_config repeats train_dataset",
    "train.parallel.enable_parallel_optimizer": "layout.train.enable_parallel_optimizer",
    "train.parallel.parallel_optimizer_config.parallel_optimizer_threshold": (
        "layout.train.parallel_optimizer_threshold_kb"
    ),
    "train.parallel.parallel_optimizer_config.optimizer_weight_shard_size": (
        "layout.train.optimizer_weight_shard_size"
    ),
    "train.parallel_config.data_parallel": "layout.train.data_parallel",
    "train.parallel_config.model_parallel": "layout.train.model_parallel",
    "train.parallel_config.pipeline_stage": "layout.train.pipeline_stage",
    "train.parallel_config.expert_parallel": "layout.train.expert_parallel",
    "train.parallel_config.use_seq_parallel": "layout.train.use_seq_parallel",
    "train.parallel_config.micro_batch_num": "mindformers.batch_size",
    "train.parallel_config.vocab_emb_dp": "layout.train.vocab_emb_dp",
    "train.parallel_config.context_parallel": "layout.train.context_parallel",
    "train.recompute_config.recompute": "layout.train.recompute",
    "train.recompute_config.select_recompute": "layout.train.select_recompute",
    "train.callbacks": "mindformers.checkpoint_every",
    "train.context.max_device_memory": "mindformers.device_memory_gib",
    "train.context.device_id": "=each worker has its card",
    "train.model.arch": _FAMILY,
    "train.model.model_config.type": _FAMILY,
    "train.model.model_config.batch_size": "mindformers.examples_per_card",
    "train.model.model_config.seq_length": "tokenize.sft_length",
    "train.model.model_config.hidden_size": "model.hidden_size",
    "train.model.model_config.num_layers": "model.num_hidden_layers",
    "train.model.model_config.num_heads": "model.num_attention_heads",
    "train.model.model_config.n_kv_heads": "model.num_key_value_heads",
    "train.model.model_config.intermediate_size": "model.intermediate_size",
    "train.model.model_config.max_position_embedding": "model.max_position_embeddings",
    "train.model.model_config.vocab_size": "model.vocab_size",
    "train.model.model_config.rms_norm_eps": "model.rms_norm_eps",
    "train.model.model_config.bos_token_id": "model.bos_token_id",
    "train.model.model_config.eos_token_id": "model.eos_token_id",
    "train.model.model_config.pad_token_id": "model.pad_token_id",
    "train.model.model_config.theta": "model.rope_theta",
    "train.model.model_config.param_init_type": "model.param_init_type",
    "train.model.model_config.qkv_concat": "model.qkv_concat",
    "train.model.model_config.offset": "layout.train.offset",
    "train.model.model_config.tie_word_embeddings": "model.tie_word_embeddings",
    "train.model.model_config.qkv_has_bias": _FAMILY,
    "train.model.model_config.checkpoint_name_or_path": "=mindformers replaces it by load_checkpoint",
    "train.model.model_config.parallel_config": "=mindformers replaces it by the section parallel_config",
    "train.model.model_config.moe_config": "=mindformers replaces it by the section moe_config",
}
"""Keys that mindformers.upstream must not set (stages/engines/upstream_keys.py)."""


def parallel_config(layout: RoleLayout) -> Values:
    """Return a role's parallel_config; mindrlhf replaces that of the model YAML by it."""
    return {
        "data_parallel": layout.data_parallel,
        "model_parallel": layout.model_parallel,
        "pipeline_stage": layout.pipeline_stage,
        "expert_parallel": layout.expert_parallel,
        "use_seq_parallel": layout.use_seq_parallel,
        "micro_batch_num": layout.micro_batch_num,
        "vocab_emb_dp": layout.vocab_emb_dp,
        "context_parallel": layout.context_parallel,
    }


def recompute_config(model: ModelConfig, layout: RoleLayout) -> Values:
    """Return the layers whose activations are recomputed: a number per pipeline stage, or true or false.

    Operators have such values each.
    """
    stages = stages_of_layers(model, layout)
    per_stage = [stages.count(stage) for stage in range(layout.pipeline_stage)]
    several = layout.pipeline_stage > 1

    def layers(value: Recompute) -> bool | list[int]:
        if not isinstance(value, bool):
            return list(value)
        return per_stage if value and several else value

    select = layout.select_recompute
    operators = {name: layers(of) for name, of in select.items()} if isinstance(select, Mapping) else None
    return {
        "recompute": layers(layout.recompute),
        "select_recompute": layers(select) if not isinstance(select, Mapping) else operators,
        "parallel_optimizer_comm_recompute": False,
        "mp_comm_recompute": True,
        "recompute_slice_activation": False,
    }


def network_inputs(model: ModelConfig, layout: RoleLayout, seq_length: int) -> NetworkInputs:
    """Return what the keys of a role's network follow from."""
    return NetworkInputs(model, layout, seq_length, model.token_ids)


def training(model: ModelConfig, layout: RoleLayout, seq_length: int) -> Values:
    """Return model_config of a role that is trained, or that scores as in training."""
    return network_of(model).training(network_inputs(model, layout, seq_length))


def predicting(model: ModelConfig, layout: RoleLayout, seq_length: int, sampled: Values) -> Values:
    """Return model_config of generation; `sampled` is the result of `sampling`."""
    return network_of(model).predicting(network_inputs(model, layout, seq_length)) | sampled


def sampling(rollout: RolloutConfig, block_size: int, num_blocks: int) -> Values:
    """Return mindformers' generation settings."""
    return {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "max_decode_length": rollout.max_tokens,
        "min_decode_length": rollout.min_tokens,
        "repetition_penalty": rollout.repetition_penalty,
        "temperature": rollout.temperature,
        "top_k": rollout.top_k or 0,
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "do_sample": True,
    }


def finetune(job: Job, paths: Paths, resume: bool) -> Values:
    """Return finetune.yaml.

    mindformers raises KeyError for unknown keys of the top level, runner_config, parallel_config and
    recompute_config (tools/register/template.py).
    """
    settings, layout = job.mindformers, job.layout.train
    train_dataset = {
        # the file: of a directory mindformers would read every MindRecord
        "data_loader": {"type": "MindDataset", "dataset_dir": str(paths.dataset), "shuffle": True},
        "input_columns": list(job.columns),  # the order of LlamaForCausalLM.construct's arguments
        "num_parallel_workers": 2,  # ids need no work; more workers than CPUs end the run
        "python_multiprocessing": False,
        "drop_remainder": True,
        "batch_size": job.examples_per_pass,
        "repeat": 1,
        "numa_enable": False,
        "prefetch_size": 1,
    }
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
        "micro_batch_interleave_num": settings.micro_batch_interleave_num,
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "qwen2_5"},
        "runner_config": {
            "epochs": settings.epochs,
            "batch_size": job.examples_per_pass,
            "sink_mode": True,  # needed to load sliced weights (load_checkpoint_utils.py, build_model)
            "sink_size": 1,
            "gradient_accumulation_steps": job.micro_batches if job.parallel and not job.is_piped else 1,
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
        "lr_schedule": _lr_schedule(job),
        "train_dataset": train_dataset,
        "train_dataset_task": {"type": "CausalLanguageModelDataset", "dataset_config": train_dataset},
        "parallel": {
            "parallel_mode": 1,
            "gradients_mean": False,
            "enable_alltoall": False,
            "full_batch": True,
            "search_mode": "sharding_propagation",
            "strategy_ckpt_save_file": "./ckpt_strategy.ckpt",
            "enable_parallel_optimizer": layout.enable_parallel_optimizer,
            "parallel_optimizer_config": _parallel_optimizer(layout),
        },
        "parallel_config": {
            **parallel_config(layout),
            "micro_batch_num": job.micro_batches if job.is_piped else 1,
            "gradient_aggregation_group": settings.gradient_aggregation_group,
        },
        "recompute_config": recompute_config(job.model, layout),
        "callbacks": [{"type": "MFLossMonitor"}, _checkpoint_monitor(job)],
        "context": {
            "mode": 0,
            "device_target": "Ascend",
            "max_call_depth": 10000,
            "max_device_memory": f"{settings.device_memory_gib}GB",
            "save_graphs": False,
            "save_graphs_path": f"{paths.root}/graph",
            "device_id": 0,
            "memory_optimize_level": "O1",
            "jit_config": {"jit_level": "O1"},
            "ascend_config": {"precision_mode": "must_keep_origin_dtype"},
        },
        "model": {
            "model_config": {
                **training(job.model, layout, job.seq_length),
                "batch_size": job.examples_per_pass,
                "do_sample": False,
            },
            "arch": dict(network_of(job.model).arch),
        },
        "metric": {"type": "PerplexityMetric"},
    }


def _lr_schedule(job: Job) -> Values:
    settings = job.mindformers
    falls = settings.schedule != "constant" and settings.final_share < 1
    keys: Values = {
        "type": SCHEDULES[settings.schedule if falls else "constant"],
        "learning_rate": settings.learning_rate,
        **(
            {"warmup_steps": settings.warmup_steps}
            if settings.warmup_ratio is None
            else {"warmup_ratio": settings.warmup_ratio}
        ),
        "total_steps": -1,  # the complete run
    }
    if falls:
        keys["lr_end"] = settings.learning_rate * settings.final_share
    return keys


def _parallel_optimizer(layout: RoleLayout) -> Values:
    keys: Values = {
        "gradient_accumulation_shard": False,
        "parallel_optimizer_threshold": layout.parallel_optimizer_threshold_kb,
    }
    if layout.optimizer_weight_shard_size != -1:
        keys["optimizer_weight_shard_size"] = layout.optimizer_weight_shard_size
    return keys


def _checkpoint_monitor(job: Job) -> Values:
    settings = job.mindformers
    return {
        "type": "CheckpointMonitor",
        "prefix": PREFIXES["checkpoint"],
        "save_checkpoint_steps": settings.checkpoint_every or ONLY_AT_THE_END,
        "keep_checkpoint_max": checkpoints_to_keep(settings.keep_checkpoints),
        "integrated_save": False,
        "async_save": False,
        "checkpoint_format": "safetensors",
    }


def added(job: Job) -> Mapping[str, Any]:
    """Return the keys of mindformers.upstream for finetune.yaml, which has the data set's twice."""
    keys: Mapping[str, Any] = job.mindformers.upstream.get("train", {})
    if "train_dataset" not in keys:
        return keys
    return merged(keys, {"train_dataset_task": {"dataset_config": keys["train_dataset"]}})


def arguments(job: Job, paths: Paths, resume: bool) -> list[str]:
    """Return the arguments of run_mindformer.py, which repeat what the YAML says."""
    named = {
        "config": paths.config,
        "run_mode": "finetune",
        "use_parallel": job.parallel,
        "load_checkpoint": paths.start,
        "auto_trans_ckpt": job.parallel and not resume,
        "resume_training": resume,
        "train_dataset_dir": paths.dataset,
        "output_dir": paths.output,
        "seed": job.seed,
    }
    return options(named)
