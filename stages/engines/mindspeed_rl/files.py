"""What grpoflow renders for MindSpeed-RL: training YAML, variables, and the YAML of preprocess_data.py.

The training YAML has no defaults list and holds the model's shape: no file of the checkout's configs is read.
Values are those of the shipped configs/grpo_qwen25_*.yaml; a comment explains each that differs.
Source: Ascend/MindSpeed-RL at 667a547, configs/grpo_qwen25_*.yaml, configs/model/,
configs/datasets/deepscaler.yaml, configs/envs/runtime_env.yaml and mindspeed_rl/config_cls.
"""

from pathlib import Path
from typing import Any

from stages.engines.mindspeed_rl.config import MindspeedRlEngine
from stages.engines.mindspeed_rl.job import Job, Paths, layer_list
from stages.engines.upstream_keys import Rendered
from stages.models.families import family_of

Values = dict[str, Any]
SEPARATE = ("ref_config", "reward_config")
"""Sections that MindSpeed-RL refuses with integrated workers."""
MEGATRON_SECTIONS = ("megatron_training", "actor_config", *SEPARATE)
"""Sections that take all keys of Megatron and of the model's shape."""
_CPUS = 8
"""num_cpus_for_placement_group's default (rl_config.py)."""

FAMILY = "=the model's family decides it"
RESUMING = "=it changes when a run resumes"
CHECKPOINTS = "=convert, resume and export expect the layout's checkpoints"
COMPUTED = "=MindSpeed-RL computes it"
_MEGATRON: Rendered = {
    "model": "model.name",
    "ai_framework": "=grpoflow runs MindSpeed-RL with MindSpore",
    "stage": "=grpoflow trains with GRPO",
    "tokenizer_type": "=it is the model's tokenizer",
    "tokenizer_name_or_path": "=it is the model's directory",
    "data_path": "=it is the data that tokenize wrote",
    # the model's shape
    "num_layers": "model.num_hidden_layers",
    "hidden_size": "model.hidden_size",
    "ffn_hidden_size": "model.intermediate_size",
    "num_attention_heads": "model.num_attention_heads",
    "num_query_groups": "model.num_key_value_heads",
    "rotary_base": "model.rope_theta",
    "max_position_embeddings": "model.max_position_embeddings",
    "padded_vocab_size": "model.vocab_size",
    "untie_embeddings_and_output_weights": "model.tie_word_embeddings",
    "norm_epsilon": "model.rms_norm_eps",
    "num_experts": FAMILY,
    "kv_channels": FAMILY,
    "qk_layernorm": FAMILY,
    "use_mcore_models": FAMILY,
    "make_vocab_size_divisible_by": FAMILY,
    "add_qkv_bias": FAMILY,
    "disable_bias_linear": FAMILY,
    "group_query_attention": FAMILY,
    "position_embedding_type": FAMILY,
    "normalization": FAMILY,
    "swiglu": FAMILY,
    # layout
    "tensor_model_parallel_size": "layout.train.model_parallel",
    "pipeline_model_parallel_size": "layout.train.pipeline_stage",
    "num_layer_list": "layout.train.offset",
    "sequence_parallel": "layout.train.use_seq_parallel",
    "use_distributed_optimizer": "layout.train.enable_parallel_optimizer",
    "recompute_granularity": "layout.train.recompute",
    "recompute_method": "layout.train.recompute",
    "recompute_num_layers": "layout.train.recompute",
    "context_parallel_size": "=it changes how many replicas the cards hold",
    "expert_model_parallel_size": CHECKPOINTS,
    "num_layers_per_virtual_pipeline_stage": CHECKPOINTS,
    "lora_target_modules": CHECKPOINTS,
    # batches and lengths
    "global_batch_size": "train.prompts_per_step",
    "micro_batch_size": "engine.micro_batch_size",
    "seq_length": "engine.seq_length",
    "pad_to_multiple_of": COMPUTED,
    # optimizer
    "train_iters": "train.steps",
    "seed": "seed",
    "lr": "train.learning_rate",
    "lr_decay_style": "train.schedule",
    "min_lr": "train.final_share",
    "lr_warmup_fraction": "train.warmup_steps",
    "weight_decay": "train.weight_decay",
    "clip_grad": "train.max_grad_norm",
    "adam_beta1": "train.adam_beta1",
    "adam_beta2": "train.adam_beta2",
    # checkpoints
    "save_interval": "train.checkpoint_every",
    "save": "=grpoflow reads the checkpoints there",
    "no_save_optim": "=a run resumes from it",
    "no_save_rng": "=a run resumes from it",
    "load": RESUMING,
    "finetune": RESUMING,
    "no_load_optim": RESUMING,
    "no_load_rng": RESUMING,
}
RENDERED: Rendered = {
    "model": "=it is the shape of the model, from section model",
    **{f"{section}.{key}": value for section in MEGATRON_SECTIONS for key, value in _MEGATRON.items()},
    "rl_config.runtime_env_path": "=it is a rendered file; see engine.runtime_env",
    "rl_config.guarantee_order": "engine.guarantee_order",
    "rl_config.use_integrated_worker": "engine.use_integrated_worker",
    "rl_config.actor_forward_micro_batch_size": "engine.forward_micro_batch_size",
    "rl_config.ref_forward_micro_batch_size": "engine.forward_micro_batch_size",
    "rl_config.init_kl_coef": "train.beta",
    "rl_config.mini_batch_size": "engine.mini_batch_size",
    "rl_config.max_prompt_length": "tokenize.max_prompt_length",
    "rl_config.epochs": "train.num_iterations",
    "rl_config.clip_ratio": "train.epsilon_low",
    "rl_config.n_samples_per_prompt": "rollout.num_generations",
    "rl_config.rule_reward": "=grpoflow trains on engine.verifier_function",
    "rl_config.verifier_function": "engine.verifier_function",
    "rl_config.verifier_weight": "engine.verifier_weight",
    "rl_config.actor_resource": "layout.train.data_parallel",
    "rl_config.reference_resource": "engine.reference_npus",
    "rl_config.reward_resource": "engine.reward_npus",
    "rl_config.num_cpus_for_placement_group": "engine.cpus_per_npu",
    "rl_config.integrated_mode_config": RESUMING,
    "generate_config.infer_tensor_parallel_size": "layout.generate.model_parallel",
    "generate_config.infer_pipeline_parallel_size": "=MindSpeed-RL refuses every other value",
    "generate_config.data_parallel_size": COMPUTED,
    "generate_config.max_num_seqs": "engine.max_num_seqs",
    "generate_config.max_model_len": "engine.max_model_len",
    "generate_config.max_num_batched_tokens": "engine.max_num_batched_tokens",
    "generate_config.gpu_memory_utilization": "engine.gpu_memory_utilization",
    "generate_config.sampling_config.max_tokens": "rollout.max_tokens",
    "generate_config.sampling_config.top_p": "rollout.top_p",
    "generate_config.sampling_config.top_k": "rollout.top_k",
    "generate_config.sampling_config.min_p": "rollout.min_p",
    "generate_config.sampling_config.temperature": "rollout.temperature",
    "generate_config.sampling_config.seed": "=all completions of a prompt would be equal",
    "profiler_config.integrated.role": "=MindSpeed-RL sets it",
    "msprobe_config.role": "=MindSpeed-RL sets it",
}
"""Keys of the training YAML that upstream must not set."""


def train_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of the training YAML, without `upstream`."""
    megatron = family_of(job.model).megatron
    assert megatron is not None  # stages.models.families.family_problems
    values: Values = {
        "model": {job.model.name: megatron(job.model)},
        "megatron_training": _megatron_training(job, paths),
        "actor_config": _actor_config(job, paths, resume),
    }
    if not job.engine.use_integrated_worker:
        values["ref_config"] = _not_trained(job, str(paths.weights))
        # required without a reward model, too
        values["reward_config"] = _not_trained(job, job.engine.reward_load or str(paths.weights))
    values["rl_config"] = _rl_config(job, paths, resume)
    values["generate_config"] = _generate_config(job)
    return values


def _megatron_training(job: Job, paths: Paths) -> Values:
    """Return the section that all roles share."""
    layout, train = job.layout.train, job.train
    values: Values = {
        "model": job.model.name,
        "ai_framework": "mindspore",  # absent from the shipped files, which train with PyTorch
        "use_fused_rmsnorm": True,
        "use_mcore_models": True,
        # Megatron refuses sequence parallelism without tensor parallelism
        "sequence_parallel": layout.use_seq_parallel and layout.model_parallel > 1,
        "use_flash_attn": True,
        "no_masked_softmax_fusion": True,
        "attention_softmax_in_fp32": True,
        "no_gradient_accumulation_fusion": True,
        "use_fused_swiglu": True,
        "use_fused_rotary_pos_emb": True,
        "bf16": True,
        "use_distributed_optimizer": layout.enable_parallel_optimizer,
        "tokenizer_type": "PretrainedFromHF",
        "tokenizer_name_or_path": str(paths.tokenizer),
        "global_batch_size": train.prompts_per_step,
        "seq_length": job.seq_length,
        "save_interval": train.checkpoint_every,
        "train_iters": train.steps,
        "stage": "ray_grpo",
        "attention_dropout": 0.0,
        "init_method_std": 0.01,
        "hidden_dropout": 0.0,
        "distributed_backend": "nccl",
        "no_shared_storage": True,
        "dataset_additional_keys": ["labels"],
        "data_path": str(paths.data),
        "split": "100,0,0",
        "no_shuffle": False,
        "full_shuffle_instruction_dataset": False,
        "seed": job.seed + 1,  # Megatron refuses 0
    }
    if layout.recompute:
        values |= {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        }
    elif layout.select_recompute:
        values["recompute_granularity"] = "selective"
    return values


def _sharding(job: Job) -> Values:
    """Return the keys by which a role shards its model."""
    layout = job.layout.train
    values: Values = {
        "model": job.model.name,
        "micro_batch_size": job.engine.micro_batch_size,
        "tensor_model_parallel_size": layout.model_parallel,
        "pipeline_model_parallel_size": layout.pipeline_stage,
    }
    if layers := layer_list(job.model, layout):
        values["num_layer_list"] = layers
    return values


def _actor_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return the section of the policy: sharding, optimizer and checkpoints."""
    train = job.train
    return {
        **_sharding(job),
        "lr": train.learning_rate,
        "lr_decay_style": train.schedule,
        "min_lr": 0.0 if train.schedule == "constant" else train.learning_rate * train.final_share,
        "weight_decay": train.weight_decay,
        "lr_warmup_fraction": job.warmup_fraction,
        "clip_grad": train.max_grad_norm or 0.0,
        "adam_beta1": train.adam_beta1,
        "adam_beta2": train.adam_beta2,
        "finetune": not resume,
        "load": str(paths.checkpoints if resume else paths.weights),
        "save": str(paths.checkpoints),
        "no_load_optim": not resume,
        "no_load_rng": not resume,
    }


def _not_trained(job: Job, weights: str) -> Values:
    """Return the section of a role with cards of its own: the reference, or the reward model."""
    return {
        **_sharding(job),
        "finetune": True,  # ignore the checkpoint's iteration
        "load": weights,
        "no_load_optim": True,
        "no_load_rng": True,
    }


def _rl_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return the section of GRPO itself: batches, loss, rewards and cards of the roles."""
    engine = job.engine
    values: Values = {
        "runtime_env_path": str(paths.configs / "runtime_env.yaml"),
        "guarantee_order": engine.guarantee_order,
        "use_integrated_worker": engine.use_integrated_worker,
        "blocking": True,
        "gamma": 1.0,
        "lam": 0.95,
        "actor_forward_micro_batch_size": job.forward_micro_batch_size,
        "ref_forward_micro_batch_size": job.forward_micro_batch_size,
        "adv_estimator": "group_norm",
        "kl_penalty": "low_var_kl",
        "kl_ctrl_type": "fixed",
        "init_kl_coef": job.train.beta,
        "mini_batch_size": job.mini_batch_size,
        # upstream keeps prompts that are shorter than this (indexed_dataset.py:545)
        "max_prompt_length": job.tokenize.max_prompt_length + 1,
        "epochs": job.train.num_iterations,
        "clip_ratio": job.train.epsilon_low,
        "entropy_coeff": 0.0,
        "shuffle_mini_batch": False,
        "n_samples_per_prompt": job.rollout.num_generations,
        "rule_reward": True,
        "verifier_function": list(engine.verifier_function),
        "verifier_weight": list(engine.verifier_weight),
        "num_cpus_for_local_task": 1.0,
        "use_tensorboard": False,  # grpoflow writes event files from the metrics
        "actor_resource": {"num_npus": job.layout.train.cards},
    }
    if engine.cpus_per_npu != _CPUS:
        values["num_cpus_for_placement_group"] = engine.cpus_per_npu
    if job.reference_npus:
        values["reference_resource"] = {"num_npus": job.reference_npus}
    if job.reward_npus:
        values["reward_resource"] = {"num_npus": job.reward_npus}
    if resume and engine.use_integrated_worker:
        values["integrated_mode_config"] = {"ref_model_load_path": str(paths.weights)}
    return values


def _generate_config(job: Job) -> Values:
    """Return the section of vLLM."""
    engine, rollout = job.engine, job.rollout
    return {
        "trust_remote_code": False,  # Qwen2.5 needs none; the shipped YAML says true
        "offload_train_optimizer": True,
        "offload_train_grad": True,
        "offload_train_param": True,
        "enforce_eager": True,
        "infer_tensor_parallel_size": job.layout.generate.model_parallel,
        "infer_pipeline_parallel_size": 1,
        "infer_expert_parallel_size": 1,
        "max_num_seqs": engine.max_num_seqs,
        "max_model_len": job.max_model_len,
        "max_num_batched_tokens": job.max_num_batched_tokens,
        "dtype": "bfloat16",
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "sampling_config": {  # no seed: vLLM would draw equal completions for equal prompts
            "logprobs": 1,
            "max_tokens": rollout.max_tokens,
            "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
            "top_k": -1 if rollout.top_k is None else rollout.top_k,
            "min_p": 0.0 if rollout.min_p is None else rollout.min_p,
            "temperature": rollout.temperature,
            "detokenize": False,
        },
    }


VARIABLES = {
    "RAY_DEDUP_LOGS": "0",
    "HYDRA_FULL_ERROR": "1",
    "TASK_QUEUE_ENABLE": "2",
    "HCCL_IF_BASE_PORT": "24703",
    "MALLOC_MMAP_THRESHOLD_": "512768",
    "LCAL_COMM_ID": "127.0.0.1:27001",
}
"""Environment variables of the shipped grpo_trainer_*.sh, for head and workers alike."""
_OF_EVERY_WORKER = {
    "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES": "true",
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    "HCCL_CONNECT_TIMEOUT": "1800",
    "HCCL_EXEC_TIMEOUT": "3600",
    "HCCL_IF_BASE_PORT": "48000",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "HYDRA_FULL_ERROR": "1",
    "VLLM_DP_SIZE": "1",
    "HCCL_BUFFSIZE": "256",
    "VLLM_USE_V1": "1",
    "VLLM_VERSION": "0.9.0",
    # Read by workers/scheduler/scheduler_ms.py:38 in the scheduler's actor, for which upstream does not set
    # it (:167); workers get their own ranks (launcher_ms.py:126).
    "RANK": "0",
    "VLLM_ENABLE_GRAPH_MODE": "0",
    "VLLM_ENABLE_MC2": "0",
    "HCCL_OP_EXPANSION_MODE": "AIV",
    "VLLM_ENABLE_TOPK_OPTIMZE": "1",  # upstream's spelling
}
"""Variables of its configs/envs/runtime_env.yaml, and RANK."""


def runtime_env(job: Job) -> Values:
    """Return the variables of every Ray worker; the user's replace upstream's."""
    return {"env_vars": {**_OF_EVERY_WORKER, **job.engine.runtime_env}}


def dataset_config(engine: MindspeedRlEngine, fetched: Path, work: Path, prefix: Path) -> Values:
    """Return the YAML of preprocess_data.py, which writes files that begin with `prefix`."""
    return {
        "input": str(work / "train.json"),
        "tokenizer_name_or_path": str(fetched),
        "output_prefix": str(prefix),
        "handler_name": "R1AlpacaStyleInstructionHandler",
        "tokenizer_type": "HuggingFaceTokenizer",
        "workers": engine.workers,
        "log_interval": engine.log_interval,
        "prompt_type": engine.prompt_type,
        "map_keys": {"prompt": "problem", "query": "", "response": "answer", "system": ""},
        "dataset_additional_keys": ["labels"],
        "cache_dir": str(work / "cache"),  # by default a directory in the user's home, which would grow
    }
