"""Every rule between fields: the smallest configuration that breaks it, and the smallest that keeps it.

A rule is a place in the code where a Problem is made. A place that no entry of RULES reaches fails the test:
whoever adds a rule adds an entry.
"""

# ruff: noqa: E501  (a table: one line for what breaks, one for what keeps)

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Gt, Le

import pipeline.config.rules
import stages.engines.mindrlhf.generation_rules
import stages.engines.mindrlhf.layout_rules
import stages.engines.mindrlhf.rules
import stages.fetch.config
import stages.fetch.sources
import stages.grpo.config
import stages.grpo.engine
import stages.grpo.rules
import stages.model_config
import stages.models.families
import stages.rewards.config
import stages.strategy.layouts
import stages.tokenize.config
import stages.weights.config
from pipeline.config.load import Config, load
from stages.config import read
from stages.errors import ConfigError
from tests.pipeline.plans import types_of
from tests.pipeline.rule_cases import check, problems, rule, without_entry, without_source

MODULES = (
    pipeline.config.rules,
    stages.grpo.engine,
    stages.engines.mindrlhf.rules,
    stages.engines.mindrlhf.generation_rules,
    stages.engines.mindrlhf.layout_rules,
    stages.grpo.config,
    stages.grpo.rules,
    stages.weights.config,
    stages.model_config,
    stages.models.families,
    stages.strategy.layouts,
    stages.rewards.config,
    stages.tokenize.config,
    stages.fetch.config,
    stages.fetch.sources,
)
SEVEN = ("engine=mindrlhf", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp1_mp4_pp2")
SMALL = ("engine=mindrlhf", "model=qwen2_5_1_5b", "model.path=/models/qwen", "layout=dp4_mp2_pp1")
PLACES = ("local_model", "local_dataset")
DEEP = ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek")
GSM8K = ("dataset=gsm8k",)
ANSWER = "https://example.org/train.jsonl"


RULES = {
    # --- every engine: pipeline/config/rules.py
    "most_cards": rule("cards=65", "cards", "must be at most 64", "cards=2"),
    "head_size": rule(
        "model.hidden_size=130", "model.hidden_size", "multiple of num_attention_heads=4", "model.hidden_size=128"
    ),
    "even_head": rule(
        "model.hidden_size=132", "model.hidden_size", "head size 33 must be even", "model.hidden_size=136"
    ),
    "grouped_queries": rule(
        "model.num_key_value_heads=3 layout=dp2_mp1_pp1",
        "model.num_key_value_heads",
        "must divide num_attention_heads=4",
        "model.num_key_value_heads=4 layout=dp2_mp1_pp1",
    ),
    "cards": rule("cards=4", "layout.train", "occupies 2 cards", "cards=2"),
    "cards_of_reference": rule(
        "layout.reference.data_parallel=1", "layout.reference", "occupies 4 cards",
        "layout.reference.data_parallel=2", SEVEN,
    ),
    "cards_of_generate": rule(
        "layout.generate.data_parallel=1", "layout.generate", "occupies 4 cards",
        "layout.generate.data_parallel=2", SEVEN,
    ),
    "heads": rule(
        "layout=dp1_mp4_pp1", "layout.train.model_parallel", "must divide num_key_value_heads=2",
        "layout=dp1_mp2_pp1",
    ),
    "heads_of_generate": rule(
        "layout.generate.model_parallel=8 layout.generate.data_parallel=1",
        "layout.generate.model_parallel",
        "must divide num_key_value_heads=4 (mindformers llama_transformer.py:187)",
        "layout.generate.model_parallel=4 layout.generate.data_parallel=2",
        SEVEN,
    ),
    "offset": rule(
        "layout.train.offset=[1]", "layout.train.offset", "2 layers on 1 stages", "layout.train.offset=[0]"
    ),
    "layers_of_a_stage": rule(
        "layout.train.offset=[28,-28]", "layout.train.offset", "at least 1", "layout.train.offset=[1,-1]",
        (*SEVEN[:-1], "layout=dp1_mp1_pp2", "model.num_hidden_layers=56"),
    ),
    "divisible": rule(
        "model.intermediate_size=641", "layout.train.model_parallel", "641 is not divisible by 2",
        "model.intermediate_size=642",
    ),
    "bytes_of_a_vocabulary": rule(
        "model.vocab_size=258", "model.vocab_size", "at least 259", "model.vocab_size=259 layout=dp1_mp1_pp1"
    ),
    "no_end": rule("model.eos_token_id=[]", "model.eos_token_id", "at least one id", "model.eos_token_id=[511]"),
    **{
        f"{name}_beyond_the_vocabulary": rule(
            f"model.{name}_token_id={beyond}", f"model.{name}_token_id", "below vocab_size=512",
            f"model.{name}_token_id={last}",
        )
        for name, beyond, last in (("bos", "512", "511"), ("eos", "[0,-1]", "[0,511]"), ("pad", "512", "0"))
    },
    "stages": rule(
        "layout=dp1_mp1_pp4", "layout.train.pipeline_stage", "at most num_hidden_layers=2",
        "layout=dp1_mp1_pp2", (*SEVEN[:-1], "model.num_hidden_layers=2"),
    ),
    "longest": rule(
        "rollout.max_tokens=2025", "rollout.max_tokens", "= 2049 must be at most", "rollout.max_tokens=2024"
    ),
    "kind_of_run": rule(
        "tokenize=text", "tokenize.kind", "must be grpo in a run", "tokenize.kind=grpo"
    ),
    "pass_at_k": rule(
        "evaluate.k=9", "evaluate.k", "at most evaluate.num_samples=8", "evaluate.k=9 evaluate.num_samples=9"
    ),
    "pass_at_k_unasked": rule(
        "evaluate.k=9 evaluate.sample_prompts=1", "evaluate.k", "at most evaluate.num_samples=8",
        "evaluate.k=9 evaluate.sample_prompts=0",
    ),
    # --- engine=local
    "local_pipeline": rule(
        "layout=dp1_mp1_pp2", "layout.train.pipeline_stage", "data_parallel x model_parallel only",
        "layout=dp2_mp1_pp1",
    ),
    "local_context": rule(
        "layout=dp1_mp1_pp1_cp2", "layout.train.context_parallel", "data_parallel x model_parallel only",
        "layout=dp2_mp1_pp1",
    ),
    "local_experts": rule(
        "layout.train.expert_parallel=2", "layout.train.expert_parallel", "data_parallel x model_parallel only",
        "layout.train.expert_parallel=1",
    ),
    "local_parallel_optimizer": rule(
        "layout.train.enable_parallel_optimizer=true", "layout.train.enable_parallel_optimizer",
        "keeps each shard whole", "layout.train.enable_parallel_optimizer=false",
    ),
    "local_qkv": rule(
        "model.qkv_concat=true", "model.qkv_concat", "reads separate q, k, v", "model.qkv_concat=false"
    ),
    "local_deepseek": rule(
        "model=deepseek_v3 model.path=/m", "model.family", "trains Qwen2 models", "model=tiny"
    ),
    "own_section": rule(
        "model.family=deepseek_v3", "model.deepseek_v3", "is required with model.family=deepseek_v3", ""
    ),
    "foreign_section": rule(
        "model.family=qwen2", "model.deepseek_v3", "is what DeepSeek-V3 has", "model.family=deepseek_v3", DEEP
    ),
    "local_cards": rule(
        "layout.reference.data_parallel=2", "layout.reference", "must occupy 2 cards as train does",
        "layout.reference.data_parallel=1",
    ),
    "local_micro_batches": rule(
        "layout.train.micro_batch_num=3", "train.prompts_per_step", "data_parallel x micro_batch_num=3",
        "layout.train.micro_batch_num=4",
    ),
    "rank_files": rule("split.format=ckpt", "split.format", "reads safetensors", "split.format=safetensors"),
    "no_role": rule("split.roles=[]", "split.roles", "at least one role", "split.roles=[train]"),
    "role_twice": rule("split.roles=[train,train]", "split.roles[1]", "is named twice", "split.roles=[train]"),
    "role_of_sft": rule(
        "split.roles=[generate]", "split.roles", "lacks train, which sft reads", "split.roles=[train]"
    ),
    "roles_of_grpo": rule(
        "split.roles=[train] sft.enabled=false", "split.roles", "lacks reference, which grpo reads",
        "split.roles=[train,reference] sft.enabled=false",
    ),
    "role_of_no_reference": rule(
        "split.roles=[reference] sft.enabled=false train.beta=0", "split.roles", "lacks train",
        "split.roles=[train] sft.enabled=false train.beta=0",
    ),
    "rows_held_out": rule(
        "train.validate_every=5 train.validation_prompts=5969", "train.validation_prompts",
        "leaves 31 of 6000 prompts", "train.validate_every=5 train.validation_prompts=5968",
    ),
    "sft_warmup": rule("sft.warmup_steps=701", "sft.warmup_steps", "at most sft.steps=700", "sft.warmup_steps=700"),
    "sft_micro_batches": rule(
        "sft.micro_batch_num=3", "sft.batch_size", "multiple of sft.micro_batch_num=3", "sft.micro_batch_num=4"
    ),
    "sft_examples": rule(
        "sft.check_prompts=5969", "sft.batch_size", "at most the 31 examples", "sft.check_prompts=5968"
    ),
    "local_prompts": rule(
        "train.prompts_per_step=3", "train.prompts_per_step", "multiple of layout.generate.data_parallel=2",
        "train.prompts_per_step=4",
    ),
    # --- engine=mindrlhf
    "roles_of_ckpt": rule(
        "engine.load_ckpt_format=ckpt engine.use_vllm=0 split.roles=[train]", "split.roles",
        "lacks generate, reference", "engine.load_ckpt_format=ckpt engine.use_vllm=0", SEVEN,
    ),
    "ids_of_qwen": rule(
        "model.vocab_size=151645", "model.eos_token_id", "must be below vocab_size=151645",
        "model.vocab_size=151648", SEVEN,
    ),
    "ckpt_without_vllm": rule(
        "engine.load_ckpt_format=ckpt", "engine.use_vllm", "vLLM loads safetensors only",
        "engine.load_ckpt_format=ckpt engine.use_vllm=0", SEVEN,
    ),
    "qkv": rule(
        "model.qkv_concat=true", "model.qkv_concat", "rename_safetensors_weights", "model.qkv_concat=false", SEVEN
    ),
    "no_sft": rule(
        "sft.enabled=true", "sft.enabled", "starts from the fetched weights", "sft.enabled=false", SEVEN
    ),
    "deepseek_format": rule(
        "engine.load_ckpt_format=ckpt engine.use_vllm=0", "engine.load_ckpt_format", "must not be ckpt", "", DEEP
    ),
    "deepseek_version": rule(
        "engine.contract=0cd087455", "engine.contract", "must be e8a8fc1", "engine.contract=e8a8fc1", DEEP
    ),
    "deepseek_experts": rule(
        "layout.train.expert_parallel=3", "layout.train.expert_parallel", "must divide", "", DEEP
    ),
    "generation_is_not_pipelined": rule(
        "layout.generate.pipeline_stage=2 layout.generate.data_parallel=1", "layout.generate.pipeline_stage",
        "must not be pipelined", "layout.generate.pipeline_stage=1", SEVEN,
    ),
    "micro_batches": rule(
        "layout.train.micro_batch_num=1", "layout.train.micro_batch_num", "at least pipeline_stage=2",
        "layout.train.micro_batch_num=2", SEVEN,
    ),
    "no_experts": rule(
        "layout.train.expert_parallel=2", "layout.train.expert_parallel", "has no experts",
        "layout.train.expert_parallel=1", SEVEN,
    ),
    "tied_context": rule(
        "layout=dp2_mp2_pp1_cp2", "layout.train.context_parallel", "MindSpore refuses tied embeddings",
        "layout=dp2_mp2_pp1_cp2 layout.train.vocab_emb_dp=true", SMALL[:-1],
    ),
    "reshard_tensor_parallel": rule(
        "engine.enable_reshard_optimizer=true layout=dp4_mp2_pp1 layout.generate.model_parallel=4",
        "layout.generate.model_parallel", "must divide layout.train.model_parallel=2",
        "engine.enable_reshard_optimizer=true layout=dp4_mp2_pp1 layout.generate.model_parallel=2", SEVEN,
    ),
    "reshard_context_parallel": rule(
        "engine.enable_reshard_optimizer=true layout=dp2_mp4_pp1_cp2", "layout.generate.context_parallel",
        "must be layout.train.context_parallel=2",
        "engine.enable_reshard_optimizer=true layout=dp4_mp4_pp1", SEVEN[:-1],
    ),
    "cut_sequences": rule(
        "engine.seq_length=2049 layout.train.use_seq_parallel=true", "engine.seq_length", "must be a multiple of 4",
        "engine.seq_length=2052 layout.train.use_seq_parallel=true", SEVEN,
    ),
    "batches_of_prompts": rule(
        "train.prompts_per_step=3", "train.prompts_per_step", "chunk_size x layout.generate.data_parallel = 2",
        "train.prompts_per_step=4", SEVEN,
    ),
    "packs": rule("engine.pack_num=3", "engine.pack_num", "must divide the 256 samples", "engine.pack_num=4", SEVEN),
    "an_update": rule(
        "train.prompts_per_step=2 rollout.num_generations=2 layout.train.micro_batch_num=8",
        "train.prompts_per_step",
        "4 packs a step are fewer than the 8 of one update",
        "train.prompts_per_step=2 rollout.num_generations=4 layout.train.micro_batch_num=8",
        SEVEN,
    ),
    "updates_without_rest": rule(
        "layout.train.micro_batch_num=3", "train.prompts_per_step", "multiple of 3, an update",
        "layout.train.micro_batch_num=4", SEVEN,
    ),
    "reference_batches": rule(
        "engine.ref_model_batch_size=3", "train.prompts_per_step", "multiple of 6, a reference batch",
        "engine.ref_model_batch_size=4", SEVEN,
    ),
    "old_policy_batches": rule(
        "engine.batch_size=3 layout.train.micro_batch_num=2", "train.prompts_per_step", "an old-policy batch",
        "engine.batch_size=2 layout.train.micro_batch_num=2", SEVEN,
    ),
    "sample_fits": rule(
        "engine.seq_length=1024", "engine.seq_length", "rollout.max_tokens + 1 = 1025 must fit",
        "engine.seq_length=2048", SEVEN,
    ),
    "compressed_mask": rule(
        "engine.seq_length=2047", "engine.seq_length", "must be at least 2048", "engine.seq_length=2048", SEVEN
    ),
    "few_positions": rule(
        "model.max_position_embeddings=1024", "engine.seq_length", "max_position_embeddings=1024",
        "model.max_position_embeddings=2048", SEVEN,
    ),
    "whole_packs": rule(
        "engine.pack_num=2 engine.seq_length=2049", "engine.seq_length", "2 of the longest samples, 2050 tokens",
        "engine.pack_num=2 engine.seq_length=2050", SEVEN,
    ),
    "deepseek_packs": rule(
        "engine.pack_num=2", "engine.pack_num", "packed samples see each other", "engine.pack_num=1", DEEP
    ),
    "vllm_length": rule(
        "engine.max_model_len=1023", "engine.max_model_len", "rollout.max_tokens = 1024 must fit",
        "engine.max_model_len=1024", SEVEN,
    ),
    "vllm_positions": rule(
        "engine.max_model_len=32769", "engine.max_model_len", "max_position_embeddings=32768",
        "engine.max_model_len=32768", SEVEN,
    ),
    "vllm_sequences": rule(
        "engine.max_num_seqs=2049", "engine.max_num_seqs", "at most max_num_batched_tokens",
        "engine.max_num_seqs=2048", SEVEN,
    ),
    "debugging": rule(
        "engine.use_vllm=2", "engine.use_vllm", "fails on e8a8fc1",
        "engine.use_vllm=2 engine.contract=0cd087455", SEVEN,
    ),
    "one_seed": rule(
        "engine.use_vllm=0 layout=dp1_mp4_pp1", "engine.use_vllm", "never learns",
        "engine.use_vllm=0 layout=dp2_mp4_pp1", SEVEN,
    ),
    "one_seed_of_ranks": rule(
        "engine.use_vllm=0 engine.load_ckpt_format=ckpt layout=dp1_mp4_pp1", "engine.use_vllm", "never learns",
        "engine.use_vllm=0 engine.load_ckpt_format=ckpt layout=dp2_mp4_pp1", SEVEN,
    ),
    "constants_of_qwen": rule(
        "engine.tokenizer=qwen model.eos_token_id=[5]", "engine.tokenizer", "vocabulary other than Qwen2.5's",
        "engine.tokenizer=auto model.eos_token_id=[5]", SEVEN,
    ),
    "monitor": rule(
        "engine.full_monitor=true", "engine.full_monitor", "grpo_models.py:377", "engine.full_monitor=false", SEVEN
    ),
    "monitor_before": rule(
        "engine.full_monitor=true engine.contract=0cd087455", "engine.full_monitor", "has no such key",
        "engine.contract=0cd087455", SEVEN,
    ),
    "constant_rate": rule(
        "train.schedule=constant", "train.schedule", "CosineDecayLR", "train.schedule=linear", SEVEN
    ),
    "constant_share": rule(
        "train.final_share=1.0", "train.final_share", "CosineDecayLR", "train.final_share=0.99", SEVEN
    ),
    "optimizer_on_the_host": rule(
        "layout.train.opt_offload=true", "layout.train.opt_offload", "adam.py:161", "layout.train.opt_offload=false",
        SEVEN,
    ),
    "positions": rule(
        "engine.seq_length=32769", "engine.seq_length", "max_position_embeddings=32768", "engine.seq_length=32768",
        SEVEN,
    ),
    "tokens": rule(
        "model.pad_token_id=152064", "model.pad_token_id", "below vocab_size=152064",
        "model.pad_token_id=152063", SEVEN,
    ),
    "begin_token": rule(
        "model.bos_token_id=153643", "model.bos_token_id", "below vocab_size=152064",
        "model.bos_token_id=151643", SEVEN,
    ),
    "end_tokens": rule(
        "model.eos_token_id=[153643]", "model.eos_token_id", "below vocab_size=152064",
        "model.eos_token_id=[151645]", SEVEN,
    ),
    "registered_reward": rule(
        "reward.functions=[answer_format]", "reward.functions[0]", "mindrlhf has no such reward",
        "reward.functions=[qwen_accuracy]", SEVEN,
    ),
    "plain_accuracy": rule(
        "reward.functions=[accuracy]", "reward.functions[0]", "replaces accuracy_reward",
        "reward.functions=[qwen_accuracy]", SEVEN,
    ),
    "mixup": rule(
        "train.ref_model_sync_steps=5", "train.ref_model_mixup_alpha", "copies the policy as it is",
        "train.ref_model_sync_steps=5 train.ref_model_mixup_alpha=1.0", SEVEN,
    ),
    "checkpoints": rule(
        "train.checkpoint_every=0", "train.checkpoint_every", "save_ckpt_interval", "train.checkpoint_every=1", SEVEN
    ),
    **{
        f"fixed_{key}": rule(f"train.{key}={wrong}", f"train.{key}", "must be", f"train.{key}={right}", SEVEN)
        for key, wrong, right in (
            ("loss_type", "dapo", "grpo"), ("scale_advantages", "false", "true"), ("max_grad_norm", "0.5", "1.0"),
            ("importance_sampling_level", "sequence", "token"), ("use_bias_correction_kl", "true", "false"),
            ("mask_truncated_completions", "true", "false"), ("resample_rounds", "1", "0"),
            ("validate_every", "1", "0"), ("max_kl", "1.0", "null"), ("resume_from", "/x", "null"),
            ("loggers", "[wandb]", "[]"),
        )
    },
    # --- the recipe
    "warmup": rule("train.warmup_steps=41", "train.warmup_steps", "at most train.steps=40", "train.warmup_steps=40"),
    "validation_prompts": rule(
        "train.validate_every=5 train.validation_prompts=0", "train.validation_prompts", "must be at least 1",
        "train.validate_every=5 train.validation_prompts=1",
    ),
    "logger_twice": rule(
        "train.loggers=[wandb,wandb]", "train.loggers[1]", "is named twice", "train.loggers=[wandb]"
    ),
    "best": rule("train.keep_best=true", "train.keep_best", "needs checks", "train.keep_best=true train.validate_every=5"),
    "patience": rule("train.patience=2", "train.patience", "needs checks", "train.patience=2 train.validate_every=5"),
    "kl_of_no_reference": rule(
        "train.max_kl=1.0 train.beta=0", "train.max_kl", "needs a reference", "train.max_kl=1.0 train.beta=0.01"
    ),
    "moves_of_no_reference": rule(
        "train.ref_model_sync_steps=5 train.beta=0", "train.ref_model_sync_steps", "needs a reference",
        "train.ref_model_sync_steps=5 train.beta=0.01",
    ),
    "tokens_at_least": rule(
        "rollout.min_tokens=33 rollout.max_tokens=32", "rollout.min_tokens", "at most rollout.max_tokens=32",
        "rollout.min_tokens=32 rollout.max_tokens=32",
    ),
    "some_reward": rule(
        "reward.functions=[] reward.weights=[]", "reward.functions", "at least one function",
        "reward.functions=[accuracy] reward.weights=[1.0]",
    ),
    "weights_of_rewards": rule(
        "reward.functions=[accuracy] reward.weights=[1.0,2.0]", "reward.weights", "one weight for each of the 1",
        "reward.functions=[accuracy] reward.weights=[1.0]",
    ),
    "known_reward": rule(
        "reward.functions=[acuracy] reward.weights=[1.0]", "reward.functions[0]", "must be one of",
        "reward.functions=[my.module:function] reward.weights=[1.0]",
    ),
    "reward_twice": rule(
        "reward.functions=[accuracy,accuracy] reward.weights=[1.0,1.0]", "reward.functions[1]", "is named twice",
        "reward.functions=[accuracy,format] reward.weights=[1.0,1.0]",
    ),
    "reward_by_length": rule(
        "reward.functions=[cosine] reward.weights=[1.0]", "reward.length", "is required for cosine", "reward=cosine"
    ),
    "two_numbers": rule(
        "reward=cosine reward.length.correct=[1.0]", "reward.length.correct", "must be two numbers", "reward=cosine"
    ),
    # --- data
    "kind_of_mindrlhf": rule(
        "tokenize=text tokenize.compat=mindrlhf", "tokenize.kind", "rlhf_data.py makes nothing else",
        "tokenize.compat=mindrlhf",
    ),
    "turns": rule(
        "tokenize.kind=alpaca tokenize.chat_template=false", "tokenize.chat_template", "turns need their marks",
        "tokenize.chat_template=false",
    ),
    "template_of_mindrlhf": rule(
        "tokenize.compat=mindrlhf tokenize.chat_template=true", "tokenize.chat_template", "knows no chat template",
        "tokenize.compat=mindrlhf tokenize.chat_template=false",
    ),
    "ids_of_mindrlhf": rule(
        "tokenize.compat=mindrlhf tokenize.id_dtype=int32", "tokenize.id_dtype", "must be int64",
        "tokenize.compat=mindrlhf tokenize.id_dtype=int64",
    ),
    "local_model": rule("model.source=local", "model.path", "is required", "model.source=builtin"),
    "two_models": rule(
        "model.path=x", "model.path", "is ignored when model.source=builtin", "model.path=x model.source=local"
    ),
    "hub_of_model": rule("model.source=modelscope", "model.hub", "is required", "model.source=builtin"),
    "name_of_repository": rule(
        "model=qwen2_5_0_5b model.hub.id=no layout=dp1_mp2_pp1", "model.hub.id", "must be owner/name",
        "model=qwen2_5_0_5b model.hub.id=me/mine layout=dp1_mp2_pp1",
    ),
    "revision": rule(
        "model=qwen2_5_0_5b model.hub.revision=a..b layout=dp1_mp2_pp1", "model.hub.revision", "commit, tag or branch",
        "model=qwen2_5_0_5b model.hub.revision=v1 layout=dp1_mp2_pp1",
    ),
    "local_dataset": rule(
        "dataset.source=local", "dataset.path", "is required", "dataset.source=local dataset.path=/data", GSM8K
    ),
    "files_of_dataset": rule(
        "dataset.source=url dataset.files=null", "dataset.files", "is required when dataset.source=url", "", GSM8K
    ),
    "hub_of_dataset": rule(
        "dataset.source=modelscope", "dataset.hub", "is required when dataset.source=modelscope", "", GSM8K
    ),
    "held_out": rule(
        "dataset.files.test=null", "dataset.test_rows", "is required where the source has no held-out file",
        "dataset.files.test=null dataset.test_rows=100", GSM8K,
    ),
    "ignored_path": rule(
        "dataset.test_path=x", "dataset.test_path", "is ignored when dataset.source=url", "", GSM8K
    ),
    "digest": rule(
        "dataset.files.train.sha256=abc", "dataset.files.train.sha256", "64 lower-case",
        f"dataset.files.train.sha256={'0' * 64}", GSM8K,
    ),
    "address": rule(
        "dataset.files.train.name=ftp://example.org/x", "dataset.files.train.name", "http or https",
        f"dataset.files.train.name={ANSWER}", GSM8K,
    ),
    "password": rule(
        "fetch.endpoint=http://u:p@example.org", "fetch.endpoint", "must not hold a user or password",
        "fetch.endpoint=http://example.org",
    ),
    "secret": rule(
        "dataset.files.train.name='https://example.org/x?token=1'", "dataset.files.train.name", "must not hold a secret",
        f"dataset.files.train.name={ANSWER}", GSM8K,
    ),
    "builtin_dataset": rule("dataset.arith=null", "dataset.arith", "is required when dataset.source=builtin"),
    "addends": rule(
        "dataset.arith.min_addends=6 dataset.arith.max_addends=5", "dataset.arith.min_addends", "must not exceed",
        "dataset.arith.min_addends=5 dataset.arith.max_addends=5",
    ),
    "builtin_held_out": rule(
        "dataset.test_rows=null", "dataset.test_rows", "is required", "dataset.test_rows=1000"
    ),
    "builtin_rows": rule(
        "dataset.train_rows=null", "dataset.train_rows", "is required", "dataset.train_rows=288"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_the_smallest_config_that_breaks_it_and_the_smallest_that_keeps_it(name: str) -> None:
    check(RULES[name])


def test_every_rule_has_an_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def besides() -> None:
        with monkeypatch.context() as without:
            without.setattr(stages.rewards.config.importlib.util, "find_spec", lambda name: None)
            told = problems(("reward.functions=[maths]", "reward.weights=[1.0]"))
            assert "pip install math-verify" in str(told[0])
            without.setattr(stages.grpo.config.importlib.util, "find_spec", lambda name: None)
            told = problems(("train.loggers=[wandb]",))
            assert "pip install 'grpoflow[loggers]'" in str(told[0])
        added = {"added_tokens_decoder": {"2": {"content": "</s>"}}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(added))
        told = problems((*SEVEN, f"model.path={tmp_path}"))
        assert "its tokenizer must know <|endoftext|>" in str(told[0])

        deep = load(DEEP)
        with pytest.raises(ConfigError, match="Qwen2 models are known"):
            stages.strategy.layouts.parameter_layouts(deep.model, deep.layout.train)

    assert without_entry(MODULES, RULES, monkeypatch, besides) == []


def test_what_an_engine_forbids_has_a_source() -> None:
    """A reader must be able to check it."""
    forbids = {
        name: one
        for name, one in RULES.items()
        if one.base in (SEVEN, SMALL, SMALL[:-1], DEEP) or (name.startswith("local_") and name not in PLACES)
    }
    assert len(forbids) > 45
    assert without_source(forbids) == []


def bounded(cls: type, values: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """(path, bound, a value beyond it, the value at it) of every bound of a section and of those below it."""
    for name, hint in types_of(cls).items():
        inner = [one for one in (hint, *typing.get_args(hint)) if typing.get_origin(one) is Annotated]
        for one in inner:
            step = 1 if typing.get_args(one)[0] is int else 1e-6
            for bound in one.__metadata__:
                if isinstance(bound, Ge):
                    yield f"{path}{name}", bound, bound.ge - step, bound.ge
                elif isinstance(bound, Gt):
                    yield f"{path}{name}", bound, bound.gt, bound.gt + step
                elif isinstance(bound, Le):
                    yield f"{path}{name}", bound, bound.le + step, bound.le
        nested = [one for one in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(one)]
        below = values[name]
        if nested and isinstance(below, Mapping):
            options = [
                one for one in nested if set(below) == {field.name for field in dataclasses.fields(one)}
            ]
            yield from bounded(options[0], below, f"{path}{name}.")  # type: ignore[arg-type]


@pytest.mark.parametrize("base", [(), SEVEN, ("launcher.timeout_s=5",)], ids=["local", "mindrlhf", "timeout"])
def test_every_range_is_kept(base: tuple[str, ...]) -> None:
    plain = load(base).plain()
    seen = 0
    for path, bound, beyond, at in bounded(Config, plain, ""):
        *groups, name = path.split(".")
        for value, wrong in ((beyond, True), (at, False)):
            values = copy.deepcopy(plain)
            functools.reduce(lambda section, group: section[group], groups, values)[name] = value
            try:
                read(Config, values)
                told = []
            except ConfigError as error:
                told = [problem for problem in error.problems if problem.path == path]
            assert bool(told) == wrong, (path, bound, value)
        seen += 1
    assert seen > 60
