"""Each rule of MindSpeed-RL refuses a configuration, and accepts a similar one."""

import pytest

from tests.stages.engines.rule_cases import check_rule

BASE = ("engine=mindspeed_rl", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp2_mp2_pp2")
VALIDATION, LOSS, TRAINER = "validate_config.py", "grpo_actor_loss_func.py", "grpo_trainer_hybrid.py"
APART, REWARD = "engine.use_integrated_worker=false", "engine.reward_load=/rm"
GENERATE = "layout.generate.data_parallel=2 layout.generate.model_parallel=2"
UPDATES = "train.prompts_per_step=8 rollout.num_generations=4 engine.micro_batch_size=4"

CASES = [  # refused key, part of the source, breaking and passing overrides
    ("model.rope_theta", "arguments.py", "model.rope_theta=1000000.5", "model.rope_theta=500000.0"),
    ("model.qkv_concat", "convert_ckpt.py", "model.qkv_concat=true", ""),
    ("layout.train.model_parallel", "tensor_parallel/layers.py", "model.vocab_size=152065", ""),
    ("layout.train.opt_offload", "megatron_config.py", "layout.train.opt_offload=true", ""),
    ("layout.train.context_parallel", "megatron_config.py", "layout=dp1_mp2_pp2_cp2", ""),
    ("layout.generate.expert_parallel", "ours: stages/models", "layout.generate.expert_parallel=2", ""),
    ("layout.train.expert_parallel", "ours: stages/models", "layout.train.expert_parallel=2", ""),
    ("layout.generate.pipeline_stage", VALIDATION, f"layout.generate.pipeline_stage=2 {GENERATE}", ""),
    ("layout.generate.context_parallel", VALIDATION, f"layout.generate.context_parallel=2 {GENERATE}", ""),
    ("layout.train.vocab_emb_dp", "tensor_parallel/layers.py", "layout.train.vocab_emb_dp=true", ""),
    ("engine.reference_npus", VALIDATION, "engine.reference_npus=8", f"{APART} engine.reference_npus=8"),
    ("engine.reward_npus", VALIDATION, f"engine.reward_npus=8 {REWARD}",
     f"{APART} engine.reward_npus=8 {REWARD}"),
    ("engine.reference_npus", "_validate_resource", f"{APART} engine.reference_npus=6",
     f"{APART} engine.reference_npus=8"),
    ("engine.reward_npus", "_validate_resource", f"{APART} engine.reward_npus=6 {REWARD}",
     f"{APART} engine.reward_npus=8 {REWARD}"),
    ("engine.reward_npus", VALIDATION, f"{APART} {REWARD}", f"{APART} engine.reward_npus=4 {REWARD}"),
    ("engine.reward_load", VALIDATION, f"{APART} engine.reward_npus=4",
     f"{APART} engine.reward_npus=4 {REWARD}"),
    ("engine.upstream.ref_config", VALIDATION, "+engine.upstream.ref_config.num_workers=4",
     f"+engine.upstream.ref_config.num_workers=4 {APART}"),
    ("train.prompts_per_step", VALIDATION, "train.prompts_per_step=5", "train.prompts_per_step=8"),
    ("engine.micro_batch_size", VALIDATION, "engine.micro_batch_size=7", "engine.micro_batch_size=1"),
    ("engine.mini_batch_size", "_split_batches", "engine.mini_batch_size=3", "engine.mini_batch_size=2"),
    ("engine.mini_batch_size", "actor_hybrid_worker.py", f"{UPDATES} engine.mini_batch_size=1",
     f"{UPDATES} engine.mini_batch_size=2"),
    ("engine.forward_micro_batch_size", "base_training_engine.py", "engine.forward_micro_batch_size=7",
     "engine.forward_micro_batch_size=1"),
    ("engine.seq_length", "mappings.py", "engine.seq_length=4097", "engine.seq_length=4098"),
    ("engine.seq_length", VALIDATION, "engine.seq_length=4094", "engine.seq_length=4096"),
    ("engine.max_model_len", VALIDATION, "engine.max_model_len=4095", "engine.max_model_len=4096"),
    ("engine.max_num_seqs", "SchedulerConfig", "engine.max_num_batched_tokens=512",
     "engine.max_num_batched_tokens=1024"),
    ("engine.seq_length", "vllm config.py", "engine.seq_length=32770", "engine.seq_length=32768"),
    ("train.loss_type", LOSS, "train.loss_type=dapo", ""),
    ("train.epsilon_high", LOSS, "train.epsilon_high=0.3", "train.epsilon_high=0.3 train.epsilon_low=0.3"),
    ("train.importance_sampling_level", LOSS, "train.importance_sampling_level=sequence", ""),
    ("train.use_bias_correction_kl", LOSS, "train.use_bias_correction_kl=true", ""),
    ("train.mask_truncated_completions", LOSS, "train.mask_truncated_completions=true", ""),
    ("train.scale_advantages", "group_norm", "train.scale_advantages=false", ""),
    ("train.advantages", "compute_utils.py", "train.advantages=rloo", ""),
    ("train.entropy_coeff", LOSS, "train.entropy_coeff=0.1", "+engine.upstream.rl_config.entropy_coeff=0.1"),
    ("train.kl_estimator", "compute_kl_penalty", "train.kl_estimator=k2",
     "+engine.upstream.rl_config.kl_penalty=mse"),
    ("train.clip_ratio_c", LOSS, "train.clip_ratio_c=3", ""),
    ("train.ref_model_sync_steps", TRAINER, "train.ref_model_sync_steps=5", ""),
    ("train.lora_rank", TRAINER, "train.lora_rank=4", ""),
    ("train.adam_epsilon", "megatron_config.py", "train.adam_epsilon=1e-6", ""),
    ("train.warmup_steps", "scheduler.py", "train.warmup_steps=63", "train.warmup_steps=62"),
    ("train.checkpoint_every", "save_interval", "train.checkpoint_every=0", "train.checkpoint_every=1"),
    ("train.checkpoint_every", "fit", "train.checkpoint_every=7", "train.checkpoint_every=10"),
    ("train.resume_from", "checkpointing.py", "train.resume_from=/x", ""),
    ("train.validate_every", TRAINER, "train.validate_every=1", ""),
    ("train.max_kl", TRAINER, "train.max_kl=1.0", ""),
    ("train.loggers", "ours", "train.loggers=[wandb]", ""),
    ("tokenize.chat_template", "preprocess_data.py", "tokenize.chat_template=true", ""),
    ("tokenize.prompt_suffix", "preprocess_data.py", "tokenize.prompt_suffix=x", ""),
    ("tokenize.compat", "preprocess_data.py", "tokenize.compat=mindrlhf", ""),
    ("tokenize.over_long", "templates.json", "tokenize.over_long=truncate", ""),
    ("rollout.min_tokens", "generate_config.py", "rollout.min_tokens=1", ""),
    ("rollout.repetition_penalty", "generate_config.py", "rollout.repetition_penalty=1.1", ""),
    ("train.resample_rounds", "train_grpo.py", "train.resample_rounds=1", ""),
    ("engine.verifier_function[0]", "rule_verifier.py", "engine.verifier_function=[acc2]",
     "engine.verifier_function=[acc]"),
    ("engine.verifier_function", "rule_verifier.py",
     "engine.verifier_function=[] engine.verifier_weight=[]", ""),
    ("engine.verifier_weight", "rule_verifier.py", "engine.verifier_weight=[1.0,2.0]",
     "engine.verifier_weight=[2.0]"),
    ("engine.prompt_type", "templates.json", "engine.prompt_type=qwen_r9", "engine.prompt_type=qwen"),
    ("reward.functions", "train_grpo.py", "reward.functions=[accuracy]", ""),
    ("reward.weights", "train_grpo.py", "reward.weights=[0.5]", ""),
]  # fmt: skip


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    check_rule(BASE, key, source, breaking, passing)
