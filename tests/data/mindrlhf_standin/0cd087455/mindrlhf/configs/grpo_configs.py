"""Keys of the sections, each with the colon by which grpoflow finds it; upstream has dataclasses here."""

KEYS = """
model_name: deterministic: align_type: dataset_file: tokenizer_dir: epochs: batch_size: sink_size:
seq_length: use_parallel: load_ckpt_format: parallel_mode: enable_compile_cache: save_strategy_dir:
save_data_file: packing: pack_num: save_prompt_completions_data: save_prompt_completions_interval:
save_prompt_completions_dir: reshard_mem_opt_level: reshard_mode: save_ckpt_interval: save_max_ckpt_num:
save_ckpt_format: enable_reshard_optimizer: tensorboard: tensorboard_dir: tensorboard_queue_size:
save_checkpoint_dir: performance_stats: micro_batch_interleaved: beta: num_generations: num_rollouts:
chunk_size: gen_experience_kwargs: num_iterations: epsilon_low: epsilon_high: seed: load: save:
model_config: parallel_config: recompute_config: offset: enable_parallel_optimizer: enable_alltoall:
use_eod_attn_mask_compression: optimizer: lr_schedule: data_parallel: model_parallel: pipeline_stage:
expert_parallel: use_seq_parallel: micro_batch_num: vocab_emb_dp: context_parallel: recompute:
select_recompute: select_comm_recompute: parallel_optimizer_comm_recompute: mp_comm_recompute:
recompute_slice_activation: type: adam_beta1: adam_beta2: eps: weight_decay: opt_offload: lr: min_lr:
warmup_step: decay_steps: lr_decay_style: ref_model_batch_size: sync_ref_model: ref_model_sync_steps:
verifier_function: verifier_weight: infer_model_batch_size: use_vllm: hf_config_path: block_size:
max_model_len: max_num_batched_tokens: max_num_seqs: max_prompt_length: num_scheduler_steps:
gpu_memory_utilization: trust_remote_code: sampling_config: temperature: repetition_penalty: top_p: top_k:
bos_token_id: eos_token_id: pad_token_id: detokenize: logprobs: max_tokens: min_tokens: min_p: mode:
device_target: max_call_depth: max_device_memory: save_graphs: save_graphs_path: device_id: jit_config:
memory_optimize_level: ascend_config: jit_level: precision_mode:
"""
