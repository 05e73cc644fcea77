"""Each rule of AReaL refuses a configuration, and accepts a similar one."""

import pytest

from tests.stages.engines.rule_cases import check_rule

BASE = (
    "engine=areal",
    "model=qwen2_5_7b",
    "model.path=/models/qwen",
    "layout=dp4_mp1_pp1",
)
ACTOR, LOSS, TRAINER, OURS = "ppo/actor.py", "functional.py", "rl_trainer.py", "ours: stages/engines/areal"
SERVERS, CPU, ASYNC = "vllm_remote.py", "engine.device=cpu", "engine.mode=async"
TWO = "layout.generate.data_parallel=2"

CASES = [  # refused key, part of the source, breaking and passing overrides
    ("train.loss_type", LOSS, "train.loss_type=grpo", "train.loss_type=dapo"),
    ("train.beta", ACTOR, "train.beta=0.01", "engine.kl_in_reward=0.01"),
    ("train.use_bias_correction_kl", ACTOR, "train.use_bias_correction_kl=true", ""),
    ("train.mask_truncated_completions", ACTOR, "train.mask_truncated_completions=true", ""),
    ("train.num_iterations", ACTOR, "train.num_iterations=2", ""),
    ("train.lora_rank", OURS, "train.lora_rank=4", ""),
    ("train.ref_model_sync_steps", TRAINER, "train.ref_model_sync_steps=5", ""),
    ("train.resample_rounds", TRAINER, "train.resample_rounds=1", ""),
    ("train.validate_every", OURS, "train.validate_every=1", ""),
    ("train.max_kl", TRAINER, "train.max_kl=1.0", ""),
    ("train.resume_from", "recover.py", "train.resume_from=/x", ""),
    ("train.loggers", OURS, "train.loggers=[wandb]", ""),
    ("rollout.min_tokens", SERVERS, "rollout.min_tokens=1", ""),
    ("rollout.min_p", SERVERS, "rollout.min_p=0.1", ""),
    ("rollout.repetition_penalty", SERVERS, "rollout.repetition_penalty=1.1", ""),
    ("tokenize.compat", OURS, "tokenize.compat=mindrlhf", ""),
    ("engine.request_timeout_s", "rollout_controller.py", "engine.request_timeout_s=60 reward.timeout_s=60",
     "engine.request_timeout_s=61 reward.timeout_s=60"),
    ("engine.request_timeout_s", "rollout_controller.py", "reward.timeout_s=3600", "reward.timeout_s=3599"),
    ("engine.staleness", "staleness_manager.py", "engine.staleness=1", f"engine.staleness=1 {ASYNC}"),
    ("engine.partial_rollout", "staleness_manager.py", "engine.partial_rollout=true",
     f"engine.partial_rollout=true {ASYNC}"),
    ("engine.partial_rollout", "remote_inf_engine.py", f"engine.partial_rollout=false {ASYNC}", ASYNC),
    ("rollout.correction_level", LOSS, "rollout.correction=tis rollout.correction_level=sequence",
     "rollout.correction=tis"),
    ("rollout.correction_max", "cli_args.py", "rollout.correction=mis rollout.correction_max=1.0",
     "rollout.correction=mis rollout.correction_max=1.1"),
    ("rollout.correction_min", LOSS, "rollout.correction=tis rollout.correction_min=0.5",
     "rollout.correction=mis rollout.correction_min=0.5"),
    ("layout.train.model_parallel", OURS, "layout=dp2_mp2_pp1", ""),
    ("layout.train.pipeline_stage", OURS, "layout=dp2_mp1_pp2", ""),
    ("layout.train.context_parallel", OURS, "layout=dp2_mp1_pp1_cp2", ""),
    ("layout.generate.pipeline_stage", OURS, f"layout.generate.pipeline_stage=2 {TWO}", ""),
    ("layout.generate.context_parallel", OURS, f"layout.generate.context_parallel=2 {TWO}", ""),
    ("layout.train.expert_parallel", OURS, "layout.train.expert_parallel=2", ""),
    ("engine.rollout_cards", "alloc_mode.py",
     f"layout.generate.model_parallel=2 {TWO} engine.rollout_cards=3",
     f"layout.generate.model_parallel=2 {TWO} engine.rollout_cards=6"),
    ("layout.generate.model_parallel", OURS, f"{CPU} layout.generate.model_parallel=2 {TWO}", CPU),
    ("layout.generate.model_parallel", "scheduler/ray.py",
     "layout.generate.model_parallel=4 layout.generate.data_parallel=1 launcher.cards_per_node=2",
     f"layout.generate.model_parallel=2 {TWO} launcher.cards_per_node=2"),
    ("engine.micro_batch_size", OURS, "engine.micro_batch_size=2", ""),
    ("engine.forward_micro_batch_size", OURS, "engine.forward_micro_batch_size=2", ""),
    ("engine.mini_batch_size", ACTOR, "engine.mini_batch_size=5", "engine.mini_batch_size=8"),
    ("engine.mini_batch_size", "fsdp_engine.py", f"{CPU} engine.mini_batch_size=8",
     "engine.mini_batch_size=8"),
    ("train.prompts_per_step", "train_controller.py", "train.prompts_per_step=6", "train.prompts_per_step=8"),
    ("rollout.max_tokens", "utils/data.py", "engine.micro_batch_tokens=40", CPU),
]  # fmt: skip


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    check_rule(BASE, key, source, breaking, passing)
