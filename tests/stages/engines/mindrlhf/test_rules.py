"""Each rule of mindrlhf refuses a configuration, and accepts a similar one."""

import json
import re

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError

BASE = ("engine=mindrlhf", "model.path=/models/qwen", "model=qwen2_5_7b", "layout=dp1_mp4_pp2")
DEEPSEEK = ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek")
LOSS, TRAINER, START = "grpo_models.py", "grpo_trainer.py", "train_worker.py; grpo_one_stage.py"
PROMPTS, ROW, PACKS = "train.prompts_per_step", "engine.seq_length", "engine.pack_num"
VLLM = "engine.use_vllm"
CUT = "layout.train.use_seq_parallel=true engine.seq_length="
MICRO = "layout.train.micro_batch_num"
RESHARD, RANKS = "engine.enable_reshard_optimizer=true", "engine.load_ckpt_format=ckpt"
TIED = "model=qwen2_5_1_5b layout=dp2_mp2_pp1_cp2"
STANDIN = "engine.mindrlhf_home=tests/data/mindrlhf_standin/0cd087455"
AGAIN, SELECT = "layout.train.recompute", "layout.train.select_recompute"
MUL = r"feed_forward\.mul"
UPSTREAM, ADDED = "engine.upstream.", "+engine.upstream."
RATE = "utils.py, LearningRate"

SHARED = [  # by grpo_one_stage.py: refused key, part of the source, breaking and passing overrides
    ("model.qkv_concat", "finetune_qwen2_5_7b.yaml", "model.qkv_concat=true", ""),
    ("layout.generate.pipeline_stage", "infer_worker.py",
     "layout.generate.pipeline_stage=2 layout.generate.data_parallel=1", ""),
    (MICRO, "PipelineCell", f"{MICRO}=1", ""),
    ("layout.train.opt_offload", "wrapper.py", "layout.train.opt_offload=true", ""),
    ("layout.train.expert_parallel", "stages/models", "layout.train.expert_parallel=2", ""),
    (AGAIN, "LayerSetting", f"{AGAIN}=[7]", f"{AGAIN}=[7,14]"),
    (AGAIN, "LayerSetting", f"{AGAIN}=[1,2,3]", f"{AGAIN}=[0,0]"),
    (SELECT, "LayerSetting", f"{SELECT}=[14]", f"{SELECT}=[14,14]"),
    (f"{SELECT}.{MUL}", "LayerSetting", f"{SELECT}={{{MUL}:[14]}}", f"{SELECT}={{{MUL}:[14,14]}}"),
    (SELECT, "LayerSetting", f"{SELECT}={{feed_forward.mul:true}}", f"{SELECT}={{{MUL}:true}}"),
    ("engine.batch_size", "MicroBatchInterleaved", "engine.micro_batch_interleave_num=2",
     "engine.micro_batch_interleave_num=2 engine.batch_size=2"),
    (PROMPTS, "_init_grpo_experience_dataset", f"{PROMPTS}=3", f"{PROMPTS}=4"),
    ("train.max_grad_norm", "wrapper.py", "train.max_grad_norm=0.5", ""),
    ("train.ref_model_mixup_alpha", "sync_ref_model",
     "train.ref_model_sync_steps=5 train.ref_model_mixup_alpha=0.6", "train.ref_model_sync_steps=5"),
    (ROW, "config.json", "engine.seq_length=32769", "engine.seq_length=32768"),
    ("train.loss_type", LOSS, "train.loss_type=dapo", ""),
    ("train.importance_sampling_level", LOSS, "train.importance_sampling_level=sequence", ""),
    ("train.use_bias_correction_kl", LOSS, "train.use_bias_correction_kl=true", ""),
    ("train.mask_truncated_completions", LOSS, "train.mask_truncated_completions=true", ""),
    ("train.scale_advantages", TRAINER, "train.scale_advantages=false", ""),
    ("train.advantages", "grpo_experience_maker.py", "train.advantages=rloo", ""),
    ("train.loss_type", LOSS, "train.preset=cispo", "train.preset=grpo"),
    ("train.entropy_coeff", LOSS, "train.entropy_coeff=0.1", ""),
    ("train.kl_estimator", LOSS, "train.kl_estimator=k2", ""),
    ("train.clip_ratio_c", LOSS, "train.clip_ratio_c=3", ""),
    ("train.resample_rounds", TRAINER, "train.resample_rounds=1", ""),
    ("train.validate_every", TRAINER, "train.validate_every=1", ""),
    ("train.lora_rank", TRAINER, "train.lora_rank=4", ""),
    ("train.max_kl", TRAINER, "train.max_kl=1.0", ""),
    ("train.resume_from", START, "train.resume_from=/x", ""),
    ("train.loggers", START, "train.loggers=[wandb]", ""),
]  # fmt: skip
CASES = [
    *SHARED,
    ("layout.train.context_parallel", "front end", TIED, f"{TIED} layout.train.vocab_emb_dp=true"),
    (ROW, "cuts evenly", f"{CUT}2049", f"{CUT}2052"),
    (ROW, "create_pack_group; one stage", "engine.seq_length=1024", "engine.seq_length=2048"),
    (ROW, "config.json", "model.max_position_embeddings=1024", "model.max_position_embeddings=2048"),
    (ROW, "transformer.py:1261", "engine.seq_length=2047", "engine.seq_length=2048"),
    (ROW, "compute_ref_log_probs", "engine.pack_num=2 engine.seq_length=2049",
     "engine.pack_num=2 engine.seq_length=2050"),
    (PACKS, "create_pack_group", "engine.pack_num=3", "engine.pack_num=4"),
    ("split.roles", "ours", f"{RANKS} {VLLM}=0 split.roles=[train]", f"{RANKS} {VLLM}=0"),
    ("split.roles", "split.py", f"{RANKS} {VLLM}=0 split.roles=[]", f"{RANKS} {VLLM}=0"),
    (VLLM, "infer_worker.py", RANKS, f"{RANKS} {VLLM}=0"),
    (VLLM, "infer_worker.py:388", f"{VLLM}=2", f"{VLLM}=2 engine.contract=0cd087455"),
    (VLLM, "infer_worker.py:358", f"{VLLM}=0 layout=dp1_mp4_pp1", f"{VLLM}=0 layout=dp2_mp4_pp1"),
    (VLLM, "infer_worker.py:358", f"{VLLM}=0 {RANKS} layout=dp1_mp4_pp1",
     f"{VLLM}=0 {RANKS} layout=dp2_mp4_pp1"),
    ("engine.max_model_len", "refuses longer", "engine.max_model_len=1023", "engine.max_model_len=1024"),
    ("engine.max_model_len", "vllm config.py", "engine.max_model_len=32769", "engine.max_model_len=32768"),
    ("engine.max_num_seqs", "SchedulerConfig", "engine.max_num_seqs=2049", "engine.max_num_seqs=2048"),
    ("model.eos_token_id", "config.json", "model.vocab_size=151645", "model.vocab_size=151648"),
    ("engine.tokenizer", "ENDOFTEXTID", "engine.tokenizer=qwen model.eos_token_id=[5]",
     "engine.tokenizer=auto model.eos_token_id=[5]"),
    ("engine.full_monitor", "grpo_models.py:377", "engine.full_monitor=true", ""),
    ("engine.full_monitor", "grpo_models.py:377", "engine.full_monitor=true engine.contract=0cd087455",
     "engine.contract=0cd087455"),
    ("train.checkpoint_every", "save_ckpt_interval", "train.checkpoint_every=0", "train.checkpoint_every=1"),
    ("train.schedule", RATE, "train.schedule=constant", "train.schedule=linear"),
    ("train.final_share", RATE, "train.final_share=1.0", "train.final_share=0.99"),
    ("reward.functions[0]", "_init_reward_fn", "reward.functions=[answer_format]", ""),
    ("reward.functions[0]", "_init_reward_fn", "reward.functions=[accuracy]", ""),
    ("reward.functions[0]", "_init_reward_fn", "reward.functions=[my.module:function]", ""),
    ("tokenize.prompt_suffix", "kk_reward_fn.py", "reward=knights tokenize.prompt_suffix=x",
     'reward=knights tokenize.prompt_suffix="Assistant:"'),
    ("layout.generate.model_parallel", "reshard_optimizer.py",
     f"{RESHARD} layout=dp4_mp2_pp1 layout.generate.model_parallel=4",
     f"{RESHARD} layout=dp4_mp2_pp1 layout.generate.model_parallel=2"),
    ("layout.generate.context_parallel", "reshard_optimizer.py", f"{RESHARD} layout=dp2_mp4_pp1_cp2",
     f"{RESHARD} layout=dp4_mp4_pp1"),
    ("engine.mindrlhf_home", "grpo_configs.py", f"{STANDIN} engine.contract=e8a8fc1", STANDIN),
    (f"{UPSTREAM}grpo_config.rl_config.beta", "", f"{ADDED}grpo_config.rl_config.beta=0.1",
     f"{ADDED}grpo_config.rl_config.reshard_mode=1"),
    (f"{UPSTREAM}model.train.model.model_config.offset", "",
     f"{ADDED}model.train.model.model_config.offset=1",
     f"{ADDED}model.train.model.model_config.fused_rms_norm=false"),
    (f"{UPSTREAM}model.train.parallel_config.data_parallel", "",
     f"{ADDED}model.train.parallel_config.data_parallel=2",
     f"{ADDED}model.reference.model.model_config.fused_rms_norm=false"),
    (f"{UPSTREAM}model.train.moe_config.use_gmm", "", f"{ADDED}model.train.moe_config.use_gmm=true", ""),
]  # fmt: skip
WITH_EXPERTS = [
    ("engine.load_ckpt_format", "infer_worker.py:189", f"{RANKS} {VLLM}=0", ""),
    ("engine.load_ckpt_format", "modeling_utils.py:1513", "engine.load_ckpt_format=hf_safetensors", ""),
    (VLLM, "deepseek3_train2infer.py", f"{VLLM}=0", ""),
    ("layout.train.pipeline_stage", "transform_worker.py:190", "model.vocab_size=1024", ""),
    ("engine.contract", "main.py of other versions", "engine.contract=0cd087455", ""),
    ("layout.train.expert_parallel", "moev3.py", "layout.train.expert_parallel=3", ""),
    ("layout.train.expert_parallel", "moev3.py",
     "model.deepseek_v3.n_routed_experts=255 layout.train.expert_parallel=2", ""),
    (PACKS, "grpo_models.py:207", "engine.pack_num=2", ""),
    (f"{UPSTREAM}model.generate.model.model_config.rotary_dtype", "",
     f"{ADDED}model.generate.model.model_config.rotary_dtype=float32",
     f"{ADDED}model.train.model.model_config.rotary_dtype=bfloat16"),
    (f"{UPSTREAM}model.train.moe_config.expert_num", "", f"{ADDED}model.train.moe_config.expert_num=8",
     f"{ADDED}model.train.moe_config.use_gmm=true"),
]  # fmt: skip
ON_PROMPTS = [  # whose remedies name a number of prompts
    ("updates", f"{PROMPTS}=2 rollout.num_generations=2 {MICRO}=8",
     f"{PROMPTS}=2 rollout.num_generations=4 {MICRO}=8"),
    ("updates", f"{MICRO}=3", f"{MICRO}=4"),
    ("updates", f"engine.batch_size=3 {MICRO}=2", f"engine.batch_size=2 {MICRO}=2"),
    ("reference batches", "engine.ref_model_batch_size=3", "engine.ref_model_batch_size=4"),
]  # fmt: skip


def refusals(base, overrides, key, source):
    with pytest.raises(ConfigError) as refused:
        load([*base, *overrides.split()])
    found = [item for item in refused.value.problems if item.path == key and source in item.source]
    assert all(problem.rule and problem.remedy for problem in found)
    return found


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    assert refusals(BASE, breaking, key, source)
    load([*BASE, *passing.split()])


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), WITH_EXPERTS, ids=lambda text: text[:60])
def test_each_rule_of_experts_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    assert refusals(DEEPSEEK, breaking, key, source)
    load([*DEEPSEEK, *passing.split()])


@pytest.mark.parametrize(("what", "breaking", "passing"), ON_PROMPTS, ids=lambda text: text[:60])
def test_the_number_of_prompts_in_a_remedy_resolves_the_problem(what, breaking, passing):
    (problem,) = (item for item in refusals(BASE, breaking, PROMPTS, "worker.py") if what in item.rule)
    number = re.fullmatch(r"use (\d+)", problem.remedy)
    assert number
    load([*BASE, *breaking.split(), f"{PROMPTS}={number[1]}"])
    load([*BASE, *passing.split()])


def test_a_tokenizer_without_endoftext_is_refused(tmp_path):
    added = {"added_tokens_decoder": {"2": {"content": "</s>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(added))
    assert refusals(BASE, f"model.path={tmp_path}", "model.path", "no row in the weights")
