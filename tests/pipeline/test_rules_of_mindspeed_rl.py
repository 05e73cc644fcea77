"""engine=mindspeed_rl: as tests/pipeline/test_rules.py."""

# ruff: noqa: E501  (a table: one line for what breaks, one for what keeps)

import pytest

from tests.pipeline.rule_cases import Rule, check, rule, without_entry, without_source

rules = pytest.importorskip("stages.engines.mindspeed_rl.rules", exc_type=ImportError)
recipe = pytest.importorskip("stages.engines.mindspeed_rl.recipe", exc_type=ImportError)

BASE = ("engine=mindspeed_rl", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp2_mp2_pp2")
OLD = (*BASE, "engine.contract=667a547")


def of(breaks: str, path: str, told: str, keeps: str = "", base: tuple[str, ...] = BASE) -> Rule:
    return rule(breaks, path, told, keeps, base)


RULES = {
    "family": of("model=deepseek_v3", "model.family", "trains Qwen2 models"),
    "qkv": of("model.qkv_concat=true", "model.qkv_concat", "reads separate weights", "model.qkv_concat=false"),
    "no_sft": of("sft.enabled=true", "sft.enabled", "starts from the fetched weights", "sft.enabled=false"),
    "vocabulary": of("model.vocab_size=152065", "layout.train.model_parallel", "must divide vocab_size", "model.vocab_size=152064"),
    "no_remove_padding": of("engine.use_remove_padding=true", "engine.use_remove_padding", "has no remove_padding", "engine.use_remove_padding=false", OLD),
    "no_swap": of("layout.train.opt_offload=true", "layout.train.opt_offload", "has no swap_optimizer", "layout.train.opt_offload=false", OLD),
    "no_context": of("layout=dp1_mp2_pp2_cp2", "layout.train.context_parallel", "has no context_parallel_algo", "layout=dp2_mp2_pp2", OLD),
    "saves_at_the_end": of("train.checkpoint_every=7", "train.checkpoint_every", "must divide train.steps=500", "train.checkpoint_every=10", OLD),
    "generation_is_not_pipelined": of("layout.generate.pipeline_stage=2 layout.generate.data_parallel=2 layout.generate.model_parallel=2", "layout.generate.pipeline_stage", "tensor and data parallel only", "layout.generate.pipeline_stage=1"),
    "generation_is_not_cut": of("layout.generate.context_parallel=2 layout.generate.data_parallel=2 layout.generate.model_parallel=2", "layout.generate.context_parallel", "tensor and data parallel only", "layout.generate.context_parallel=1"),
    "no_experts_of_generate": of("layout.generate.expert_parallel=2", "layout.generate.expert_parallel", "has no experts", "layout.generate.expert_parallel=1"),
    "no_experts": of("layout.train.expert_parallel=2", "layout.train.expert_parallel", "has no experts", "layout.train.expert_parallel=1"),
    "ulysses": of("layout=dp1_mp2_pp1_cp4", "layout.train.context_parallel", "must divide num_attention_heads=28", "layout=dp1_mp2_pp1_cp2"),
    "split_vocabulary": of("layout.train.vocab_emb_dp=true", "layout.train.vocab_emb_dp", "always splits the vocabulary", "layout.train.vocab_emb_dp=false"),
    "offload": of("layout.train.opt_offload=true layout.train.enable_parallel_optimizer=false", "layout.train.opt_offload", "needs layout.train.enable_parallel_optimizer", "layout.train.opt_offload=true layout.train.enable_parallel_optimizer=true"),
    "cut_sequences": of("engine.seq_length=4097", "engine.seq_length", "must be a multiple of 2", "engine.seq_length=4098"),
    "integrated": of("engine.reference_npus=8", "engine.reference_npus", "must be null with integrated workers", "engine.use_integrated_worker=false engine.reference_npus=8"),
    "cards_of_reference": of("engine.use_integrated_worker=false engine.reference_npus=6", "engine.reference_npus", "must be a multiple of layout.train's", "engine.use_integrated_worker=false engine.reference_npus=8"),
    "integrated_reward": of("engine.reward_npus=8 engine.reward_load=/rm", "engine.reward_npus", "must be null with integrated workers", "engine.use_integrated_worker=false engine.reward_npus=8 engine.reward_load=/rm"),
    "cards_of_reward": of("engine.use_integrated_worker=false engine.reward_npus=6 engine.reward_load=/rm", "engine.reward_npus", "must be a multiple of layout.train's", "engine.use_integrated_worker=false engine.reward_npus=8 engine.reward_load=/rm"),
    "cards_of_a_reward_model": of("engine.use_integrated_worker=false engine.reward_load=/rm", "engine.reward_npus", "needs both", "engine.use_integrated_worker=false engine.reward_npus=4 engine.reward_load=/rm"),
    "reward_model": of("engine.use_integrated_worker=false engine.reward_npus=4", "engine.reward_load", "needs both", "engine.use_integrated_worker=false engine.reward_npus=4 engine.reward_load=/rm"),
    "replicas": of("train.prompts_per_step=5", "train.prompts_per_step", "must be a multiple of layout.train.data_parallel = 2", "train.prompts_per_step=8"),
    "micro_batches": of("engine.micro_batch_size=7", "engine.micro_batch_size", "completions of a replica", "engine.micro_batch_size=1"),
    "mini_batches": of("engine.mini_batch_size=3", "engine.mini_batch_size", "must divide train.prompts_per_step", "engine.mini_batch_size=2"),
    "mini_of_micro": of("train.prompts_per_step=8 engine.mini_batch_size=1 rollout.num_generations=4 engine.micro_batch_size=4", "engine.mini_batch_size", "must be a multiple of layout.train.data_parallel", "train.prompts_per_step=8 engine.mini_batch_size=2 rollout.num_generations=4 engine.micro_batch_size=4"),
    "forward": of("engine.forward_micro_batch_size=7", "engine.forward_micro_batch_size", "must divide", "engine.forward_micro_batch_size=1"),
    "sample_fits": of("engine.seq_length=4094", "engine.seq_length", "must fit", "engine.seq_length=4096"),
    "vllm_length": of("engine.max_model_len=4095", "engine.max_model_len", "must be at least seq_length=4096", "engine.max_model_len=4096"),
    "positions": of("engine.seq_length=32770", "engine.seq_length", "max_position_embeddings=32768", "engine.seq_length=32768"),
    "checkpoints": of("train.checkpoint_every=0", "train.checkpoint_every", "must be at least 1", "train.checkpoint_every=1"),
    "warmup": of("train.warmup_steps=500", "train.warmup_steps", "must be below train.steps=500", "train.warmup_steps=499"),
    "known_verifier": of("engine.verifier_function=[acc2] engine.verifier_weight=[1.0]", "engine.verifier_function[0]", "is skipped silently", "engine.verifier_function=[base_acc] engine.verifier_weight=[1.0]"),
    "some_verifier": of("engine.verifier_function=[] engine.verifier_weight=[]", "engine.verifier_function", "must name at least one", "engine.verifier_function=[base_acc] engine.verifier_weight=[1.0]"),
    "weights": of("engine.verifier_weight=[1.0,2.0]", "engine.verifier_weight", "one weight for each of the 1", "engine.verifier_weight=[2.0]"),
    "prompt_type": of("engine.prompt_type=qwen_r9", "engine.prompt_type", "must be one of", "engine.prompt_type=qwen_r1"),
    **{
        f"fixed_{key}": of(f"train.{key}={wrong}", f"train.{key}", "must be", f"train.{key}={right}")
        for key, wrong, right in (
            ("loss_type", "dapo", "grpo"), ("scale_advantages", "false", "true"), ("epsilon_high", "0.3", "0.2"),
            ("importance_sampling_level", "sequence", "token"), ("use_bias_correction_kl", "true", "false"),
            ("mask_truncated_completions", "true", "false"), ("adam_epsilon", "1e-6", "1e-8"),
            ("resample_rounds", "1", "0"), ("ref_model_sync_steps", "5", "0"), ("validate_every", "1", "0"),
            ("max_kl", "1.0", "null"), ("resume_from", "/x", "null"),
        )
    },
    "min_tokens": of("rollout.min_tokens=1", "rollout.min_tokens", "has no such key", "rollout.min_tokens=0"),
    "repetition": of("rollout.repetition_penalty=1.1", "rollout.repetition_penalty", "has no such key", "rollout.repetition_penalty=1.0"),
    "template": of("tokenize.chat_template=true", "tokenize.chat_template", "is the template", "tokenize.chat_template=false"),
    "suffix": of("tokenize.prompt_suffix=x", "tokenize.prompt_suffix", "is the template", "tokenize.prompt_suffix=''"),
    "compat": of("tokenize.compat=mindrlhf", "tokenize.compat", "makes the records", "tokenize.compat=none"),
    "over_long": of("tokenize.over_long=truncate", "tokenize.over_long", "must not be cut", "tokenize.over_long=drop"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_the_smallest_config_that_breaks_it_and_the_smallest_that_keeps_it(name: str) -> None:
    check(RULES[name])


def test_every_rule_has_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_entry((rules, recipe), RULES, monkeypatch) == []


def test_what_it_forbids_has_a_source() -> None:
    assert without_source(RULES) == []
