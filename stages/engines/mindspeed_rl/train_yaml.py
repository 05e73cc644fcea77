"""The training YAML and runtime_env.yaml as plain values, with keys that the contract's version accepts.

The YAML has no defaults list and contains the model's shape: no file of the checkout's configs is read.
A comment explains each value that differs from the shipped one.
Source: Ascend/MindSpeed-RL at 667a547 and 05a90d7, configs/grpo_qwen25_*.yaml, configs/model/,
configs/envs/runtime_env.yaml and mindspeed_rl/config_cls.
"""

from pathlib import Path
from typing import Any

from stages.engines.mindspeed_rl.job import Job, Paths, layer_list
from stages.models.families import family_of

Values = dict[str, Any]
_CPUS = 8
"""num_cpus_for_placement_group's default (rl_config.py)."""


def train_config(job: Job, paths: Paths, resume: bool) -> Values:
    """Return all sections of the training YAML."""
    separate = {}
    if not job.engine.use_integrated_worker:
        reward = (
            job.engine.reward_load or paths.weights
        )  # the section is required without a reward model, too
        separate = {"ref_config": _loads(job, paths.weights), "reward_config": _loads(job, reward)}
    megatron = family_of(job.model).megatron
    assert megatron is not None  # stages.models.families.RULES
    return {
        "model": {job.model.name: megatron(job.model)},
        "megatron_training": _megatron(job, paths),
        "actor_config": _actor(job, paths, resume),
        **separate,
        "rl_config": _rl(job, paths, resume),
        "generate_config": _generate(job),
    }


def runtime_env(job: Job) -> Values:
    """Return the variables of every Ray worker: the shipped ones and RANK, overridden by the user's."""
    newest = job.version == "05a90d7"
    shipped = {
        "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES": "true",
        "TOKENIZERS_PARALLELISM": "true",
        "NCCL_DEBUG": "WARN",
        "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
        "HCCL_CONNECT_TIMEOUT": "1800",
        "HCCL_EXEC_TIMEOUT": "3600",
        "HCCL_IF_BASE_PORT": "12345" if newest else "48000",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "HYDRA_FULL_ERROR": "1",
        "VLLM_DP_SIZE": "1",  # more only for models with experts
        "HCCL_BUFFSIZE": "256",
        "VLLM_USE_V1": "1",
        "VLLM_VERSION": "0.11.0" if newest else "0.9.0",
        # read by workers/scheduler/scheduler_ms.py:38 in the scheduler's actor, for which upstream does not
        # set it (:167); workers get their own ranks (launcher_ms.py:126)
        "RANK": "0",
    }
    variables = (
        {
            "USING_LCCL_COM": "0",
            "VLLM_ASCEND_ENABLE_TOPK_OPTIMIZE": "1",
            "VLLM_ASCEND_ACL_OP_INIT_MODE": "0",
            "VLLM_ASCEND_ENABLE_NZ": "0",
            "TASK_QUEUE_ENABLE": "2",
            "CPU_AFFINITY_CONF": "1",
            "LCAL_COMM_ID": "127.0.0.1:27001",
        }
        if newest
        else {
            "VLLM_ENABLE_GRAPH_MODE": "0",
            "VLLM_ENABLE_MC2": "0",
            "HCCL_OP_EXPANSION_MODE": "AIV",
            "VLLM_ENABLE_TOPK_OPTIMZE": "1",  # upstream's spelling
        }
    )
    return {"env_vars": {**shipped, **variables, **job.engine.runtime_env}}


def _megatron(job: Job, paths: Paths) -> Values:
    layout, train = job.actor, job.train
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
        values["recompute_granularity"] = "full"
        values |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    elif layout.select_recompute:
        values["recompute_granularity"] = "selective"
    if layout.opt_offload:
        values["swap_optimizer"] = True
    if job.engine.use_remove_padding:
        values["reset_attention_mask"] = True
        values["no_pad_to_seq_lengths"] = True  # required with a pipeline (validate_config.py)
    return values


def _parallelism(job: Job) -> Values:
    layout = job.actor
    values: Values = {
        "micro_batch_size": job.engine.micro_batch_size,
        "tensor_model_parallel_size": layout.model_parallel,
        "pipeline_model_parallel_size": layout.pipeline_stage,
    }
    if layout.context_parallel > 1:
        values["context_parallel_size"] = layout.context_parallel
    if layers := layer_list(job.model, layout):
        values["num_layer_list"] = layers
    return values


def _actor(job: Job, paths: Paths, resume: bool) -> Values:
    train = job.train
    return {
        "model": job.model.name,
        **_parallelism(job),
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


def _loads(job: Job, weights: Path | str) -> Values:
    """Return the settings of a role that is not trained."""
    return {
        "model": job.model.name,
        **_parallelism(job),
        "finetune": True,  # ignore the checkpoint's iteration
        "load": str(weights),
        "no_load_optim": True,
        "no_load_rng": True,
    }


def _rl(job: Job, paths: Paths, resume: bool) -> Values:
    engine, train = job.engine, job.train
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
        "init_kl_coef": train.beta,
        "mini_batch_size": job.mini_batch_size,
        # upstream keeps prompts that are shorter than this (indexed_dataset.py:545)
        "max_prompt_length": job.tokenize.max_prompt_length + 1,
        "epochs": train.num_iterations,
        "clip_ratio": train.epsilon_low,
        "entropy_coeff": 0.0,
        "shuffle_mini_batch": False,
        "n_samples_per_prompt": job.rollout.num_generations,
        "rule_reward": True,
        "verifier_function": list(engine.verifier_function),
        "verifier_weight": list(engine.verifier_weight),
        "num_cpus_for_local_task": 1.0,
        "use_tensorboard": False,  # grpoflow writes event files from the metrics
        "actor_resource": {"num_npus": job.actor.cards},
    }
    if engine.cpus_per_npu != _CPUS:
        values["num_cpus_for_placement_group"] = engine.cpus_per_npu
    if job.version == "05a90d7":
        values["log_max_throughput"] = False
    if engine.use_remove_padding:
        values["use_remove_padding"] = True
    if job.reference_npus:
        values["reference_resource"] = {"num_npus": job.reference_npus}
    if job.reward_npus:
        values["reward_resource"] = {"num_npus": job.reward_npus}
    if resume and engine.use_integrated_worker:
        values["integrated_mode_config"] = {"ref_model_load_path": str(paths.weights)}
    return values


def _generate(job: Job) -> Values:
    engine, rollout = job.engine, job.rollout
    return {
        "trust_remote_code": False,  # Qwen2.5 needs none; the shipped YAML says true
        "offload_train_optimizer": True,
        "offload_train_grad": True,
        "offload_train_param": True,
        **({"enforce_eager": True} if job.version == "667a547" else {}),
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
            "min_p": rollout.min_p or 0.0,
            "temperature": rollout.temperature,
            "detokenize": False,
        },
    }
