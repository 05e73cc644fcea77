"""Each rule of verl refuses a configuration, and accepts a similar one."""

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError

BASE = (
    "engine=verl",
    "model=qwen2_5_7b",
    "model.path=/models/qwen",
    "layout=dp4_mp1_pp1",
    "train.warmup_steps=4",
)
LOSSES, TRAINER, FSDP = "losses.py", "trainer_base.py", "fsdp/transformer_impl.py"
REPLICA, ROLLOUT = "rollout/replica.py", "agent_loop_tq.py"
CPU, MEGATRON = "engine.device=cpu", "engine.strategy=megatron layout=dp1_mp2_pp2"
TWO = "layout.generate.data_parallel=2"

CASES = [  # refused key, part of the source, breaking and passing overrides
    ("train.use_bias_correction_kl", LOSSES, "train.use_bias_correction_kl=true", ""),
    ("train.mask_truncated_completions", LOSSES, "train.mask_truncated_completions=true", ""),
    ("train.resample_rounds", TRAINER, "train.resample_rounds=1", ""),
    ("train.validate_every", TRAINER, "train.validate_every=1", ""),
    ("train.max_kl", TRAINER, "train.max_kl=1.0", ""),
    ("train.resume_from", TRAINER, "train.resume_from=/x", ""),
    ("train.ref_model_sync_steps", TRAINER, "train.ref_model_sync_steps=5", ""),
    ("train.loggers", "ours", "train.loggers=[wandb]", ""),
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
]  # fmt: skip


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    with pytest.raises(ConfigError) as refused:
        load([*BASE, *breaking.split()])
    (problem, *_) = [
        found for found in refused.value.problems if found.path == key and source in found.source
    ]
    assert problem.rule and problem.remedy
    load([*BASE, *passing.split()])
