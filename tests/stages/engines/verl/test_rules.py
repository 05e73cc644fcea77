"""Each rule of verl refuses a configuration, and accepts a similar one."""

import pytest

from tests.stages.engines.rule_cases import check_rule

BASE = (
    "engine=verl",
    "model=qwen2_5_7b",
    "model.path=/models/qwen",
    "layout=dp4_mp1_pp1",
    "train.warmup_steps=4",
)
LOSSES, TRAINER, FSDP = "losses.py", "trainer_base.py", "fsdp/transformer_impl.py"
CORE = "core_algos.py"
REPLICA, ROLLOUT = "rollout/replica.py", "agent_loop_tq.py"
CPU, MEGATRON = "engine.device=cpu", "engine.strategy=megatron layout=dp1_mp2_pp2"
CORRECTION, UPSTREAM = "rollout_corr_helper.py", "engine.upstream.actor_rollout_ref"
BUCKET = f"{UPSTREAM}.rollout.checkpoint_engine.update_weights_bucket_megabytes"
SAME = "engine.deterministic=true"
TWO = "layout.generate.data_parallel=2"
TURNS = "rollout.agent=tool tokenize.chat_template=true"
SCHEMAS = "tools/function_tool.py"
OWN_TOOLS = f"+{UPSTREAM}.rollout.multi_turn.tool_config_path=/tools.yaml"

CASES = [  # refused key, part of the source, breaking and passing overrides
    ("train.use_bias_correction_kl", LOSSES, "train.use_bias_correction_kl=true", ""),
    ("train.mask_truncated_completions", LOSSES, "train.mask_truncated_completions=true", ""),
    ("train.patience", TRAINER, "train.patience=2 train.validate_every=5", "train.validate_every=5"),
    ("train.validate_every", TRAINER, "train.keep_best=true train.validate_every=15",
     "train.keep_best=true train.validate_every=20"),
    ("train.checkpoint_every", TRAINER,
     "train.keep_best=true train.validate_every=5 train.checkpoint_every=0", "train.keep_best=true"),
    ("train.validation_prompts", "ours", "train.validate_every=5 dataset.train_rows=260",
     "train.validate_every=5 dataset.train_rows=288"),
    ("rollout.correction_min", CORRECTION, "rollout.correction=tis rollout.correction_min=0.5",
     "rollout.correction=mis rollout.correction_min=0.5"),
    (f"{UPSTREAM}.rollout.calculate_log_probs", CORRECTION,
     f"rollout.correction=tis +{UPSTREAM}.rollout.calculate_log_probs=false",
     f"+{UPSTREAM}.rollout.calculate_log_probs=false"),
    (BUCKET, "bucketed_weight_transfer.py", f"+{BUCKET}=2047", f"+{BUCKET}=2079"),
    (f"{UPSTREAM}.actor.checkpoint.async_save", TRAINER, f"+{UPSTREAM}.actor.checkpoint.async_save=true",
     f"+{UPSTREAM}.actor.checkpoint.async_save=true {MEGATRON}"),
    ("engine.rollout", "ours", f"{CPU} engine.rollout=sglang", f"{CPU} engine.rollout=vllm"),
    ("engine.rollout", REPLICA, "engine.rollout=transformers", f"{CPU} engine.rollout=transformers"),
    ("engine.rollout", "plugin", f"{SAME} engine.rollout=sglang", SAME),
    ("engine.strategy", "megatron.yaml", f"{SAME} {MEGATRON}", SAME),
    ("train.max_kl", TRAINER, "train.max_kl=1.0", ""),
    ("train.resume_from", TRAINER, "train.resume_from=/x", ""),
    ("train.ref_model_sync_steps", TRAINER, "train.ref_model_sync_steps=5", ""),
    ("train.loggers", "ours", "train.loggers=[wandb]", ""),
    ("engine.loss_mode", CORE, "engine.loss_mode=kl_cov train.loss_type=sapo", "engine.loss_mode=kl_cov"),
    ("engine.loss_mode", "compute_policy_loss_dro", "engine.loss_mode=dro",
     "engine.loss_mode=dro +engine.upstream.actor_rollout_ref.actor.policy_loss.dro_beta=0.1"),
    ("train.importance_sampling_level", CORE,
     "train.loss_type=cispo train.importance_sampling_level=sequence",
     "train.loss_type=dapo train.importance_sampling_level=sequence"),
    ("train.importance_sampling_level", CORE,
     "engine.loss_mode=clip_cov train.importance_sampling_level=sequence", "engine.loss_mode=clip_cov"),
    ("train.clip_ratio_c", CORE, "train.clip_ratio_c=3 train.importance_sampling_level=sequence",
     "train.clip_ratio_c=3"),
    ("engine.micro_batch_size", "compute_policy_loss_geo_mean", "engine.loss_mode=geo_mean",
     "engine.loss_mode=geo_mean train.prompts_per_step=4 rollout.num_generations=4"),
    ("engine.adv_estimator", CORE, "engine.adv_estimator=opo train.advantages=rloo",
     "engine.adv_estimator=opo"),
    ("train.schedule", FSDP, "train.schedule=linear", "train.schedule=constant"),
    ("train.schedule", FSDP, "train.schedule=linear", f"train.schedule=linear {MEGATRON}"),
    ("train.warmup_steps", "engine_workers.py", "train.num_iterations=3", "train.num_iterations=2"),
    ("train.lora_rank", "ours", f"train.lora_rank=4 {MEGATRON}", MEGATRON),
    ("train.lora_rank", "vllm_rollout", "train.lora_rank=513", "train.lora_rank=512"),
    ("train.lora_rank", "vllm_rollout", "train.lora_rank=600", "train.lora_rank=600 engine.rollout=sglang"),
    ("rollout.min_tokens", ROLLOUT, "rollout.min_tokens=1", ""),
    ("rollout.min_p", ROLLOUT, "rollout.min_p=0.1", ""),
    ("rollout.repetition_penalty", ROLLOUT, "rollout.repetition_penalty=1.1", ""),
    ("tokenize.compat", "agent_loop", "tokenize.compat=mindrlhf", ""),
    ("layout.train.model_parallel", FSDP, "layout=dp2_mp2_pp1", MEGATRON),
    ("layout.train.pipeline_stage", FSDP, "layout=dp2_mp1_pp2", MEGATRON),
    ("layout.train.context_parallel", "actor.py", f"{CPU} layout=dp2_mp1_pp1_cp2", "layout=dp2_mp1_pp1_cp2"),
    ("engine.strategy", "engine/megatron", f"{CPU} engine.strategy=megatron", MEGATRON),
    ("layout.generate.pipeline_stage", REPLICA, f"layout.generate.pipeline_stage=2 {TWO}", ""),
    ("layout.generate.context_parallel", REPLICA, f"layout.generate.context_parallel=2 {TWO}", ""),
    ("layout.train.expert_parallel", "ours: stages/engines/verl",
     "model=qwen3_30b_a3b layout.train.expert_parallel=2", "model=qwen3_30b_a3b"),
    ("layout.train.expert_parallel", "ours: stages/models", "layout.train.expert_parallel=2", ""),
    ("layout.generate.model_parallel", REPLICA,
     "layout.generate.model_parallel=4 layout.generate.data_parallel=1 launcher.cards_per_node=2",
     f"layout.generate.model_parallel=2 {TWO} launcher.cards_per_node=2"),
    ("layout.train.data_parallel", "RayResourcePool", "launcher.cards_per_node=3",
     "launcher.cards_per_node=2"),
    ("train.prompts_per_step", "engine_workers.py", "train.prompts_per_step=3 rollout.num_generations=2",
     "train.prompts_per_step=4 rollout.num_generations=2"),
    ("train.prompts_per_step", "engine_workers.py", "engine.mini_batch_size=1 rollout.num_generations=2",
     "engine.mini_batch_size=2 rollout.num_generations=2"),
    ("engine.mini_batch_size", "tensordict_utils.py", "engine.mini_batch_size=5", "engine.mini_batch_size=8"),
    ("rollout.tools", "tool_agent_loop.py", TURNS, f"{TURNS} {OWN_TOOLS}"),
    ("rollout.tools[0]", SCHEMAS, f"{TURNS} rollout.tools=[functools:partialmethod]",
     f"{TURNS} rollout.tools=[not_here:add]"),
    ("engine.tool_parser", "agent.py", "engine.tool_parser=glm",
     f"engine.tool_parser=glm {TURNS} rollout.tools=[not_here:add]"),
    (f"{UPSTREAM}.rollout.multi_turn.enable", "", f"+{UPSTREAM}.rollout.multi_turn.enable=true",
     f"+{UPSTREAM}.rollout.multi_turn.tool_response_truncate_side=left"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    check_rule(BASE, key, source, breaking, passing)
