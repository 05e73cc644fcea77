"""Keys of each section: a mere list, which grpoflow reads. Values need no types or defaults."""
# ruff: noqa: E701, E702
# fmt: off

from typing import Any


class RLConfig:
    model_name: Any; deterministic: Any; align_type: Any; dataset_file: Any; tokenizer_type: Any
    tokenizer_dir: Any; epochs: Any; batch_size: Any; sink_size: Any; seq_length: Any; use_parallel: Any
    load_ckpt_format: Any; parallel_mode: Any; enable_compile_cache: Any; save_strategy_dir: Any
    save_data_file: Any; packing: Any; pack_num: Any; save_prompt_completions_data: Any
    save_prompt_completions_interval: Any; save_prompt_completions_dir: Any; reshard_mem_opt_level: Any
    reshard_mode: Any; save_ckpt_interval: Any; save_max_ckpt_num: Any; save_ckpt_format: Any
    enable_reshard_optimizer: Any; tensorboard: Any; tensorboard_dir: Any; tensorboard_queue_size: Any
    enable_full_monitor: Any; calculate_entropy: Any; save_checkpoint_dir: Any; performance_stats: Any
    micro_batch_interleaved: Any; beta: Any; num_generations: Any; num_rollouts: Any; chunk_size: Any
    gen_experience_kwargs: Any; num_iterations: Any; epsilon_low: Any; epsilon_high: Any
    enable_oldpolicy: Any; seed: Any
class ActorConfig:
    load: Any; save: Any; model_config: Any; parallel_config: Any; recompute_config: Any; offset: Any
    enable_parallel_optimizer: Any; enable_alltoall: Any; use_eod_attn_mask_compression: Any
    loss_scale_value: Any; optimizer: Any; lr_schedule: Any
class ParallelConfig:
    data_parallel: Any; model_parallel: Any; pipeline_stage: Any; expert_parallel: Any
    use_seq_parallel: Any; micro_batch_num: Any; vocab_emb_dp: Any; context_parallel: Any
class RecomputeConfig:
    recompute: Any; select_recompute: Any; select_comm_recompute: Any
    parallel_optimizer_comm_recompute: Any; mp_comm_recompute: Any; recompute_slice_activation: Any
class Optimizer: type: Any; adam_beta1: Any; adam_beta2: Any; eps: Any; weight_decay: Any; opt_offload: Any
class LRSchedule: lr: Any; min_lr: Any; warmup_step: Any; decay_steps: Any; lr_decay_style: Any
class RefConfig:
    model_config: Any; load: Any; ref_model_batch_size: Any; sync_ref_model: Any; ref_model_sync_steps: Any
    parallel_config: Any; recompute_config: Any; offset: Any; use_eod_attn_mask_compression: Any
class RewardConfig: verifier_function: Any; verifier_weight: Any
class GenerateConfig:
    model_config: Any; load: Any; infer_model_batch_size: Any; parallel_config: Any; offset: Any
    use_eod_attn_mask_compression: Any; use_vllm: Any; hf_config_path: Any; block_size: Any
    max_model_len: Any; max_num_batched_tokens: Any; max_num_seqs: Any; max_prompt_length: Any
    num_scheduler_steps: Any; gpu_memory_utilization: Any; trust_remote_code: Any; sampling_config: Any
class SamplingConfig:
    temperature: Any; repetition_penalty: Any; top_p: Any; top_k: Any; bos_token_id: Any; eos_token_id: Any
    pad_token_id: Any; detokenize: Any; logprobs: Any; max_tokens: Any; min_tokens: Any; min_p: Any
class MonitorConfig:
    host_monitor_interval: Any; host_monitor_steps: Any; host_memory_protection: Any
    host_max_memory_threshold: Any
class ProfilerConfig:
    profile: Any; mstx: Any; stage: Any; profile_save_path: Any; profile_level: Any
    profile_with_memory: Any; profile_with_cpu: Any; profile_with_npu: Any; profile_with_stack: Any
    profile_step_start: Any; profile_step_end: Any; profile_analysis: Any; profile_ranks: Any
class Context:
    mode: Any; device_target: Any; max_call_depth: Any; max_device_memory: Any; save_graphs: Any
    save_graphs_path: Any; device_id: Any; jit_config: Any; memory_optimize_level: Any; ascend_config: Any
class JitConfig: jit_level: Any
class AscendConfig: precision_mode: Any
