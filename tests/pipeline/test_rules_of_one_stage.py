"""engine=mindrlhf_one_stage: as tests/pipeline/test_rules.py."""

# ruff: noqa: E501  (a table: one line for what breaks, one for what keeps)

import pytest

from tests.pipeline.rule_cases import Rule, check, rule, without_entry, without_source

rules = pytest.importorskip("stages.engines.mindrlhf.one_stage.rules", exc_type=ImportError)

BASE = (
    "engine=mindrlhf_one_stage",
    "model=qwen2_5_7b",
    "model.path=/models/qwen",
    "layout=dp1_mp4_pp2",
    "train.prompts_per_step=2",
    "rollout.num_generations=4",
)


def of(breaks: str, path: str, told: str, keeps: str = "", base: tuple[str, ...] = BASE) -> Rule:
    return rule(breaks, path, told, keeps, base)


RULES = {
    "qkv": of("model.qkv_concat=true", "model.qkv_concat", "finetune_qwen2_5_7b.yaml", "model.qkv_concat=false"),
    "family": of("model=deepseek_v3", "model.family", "trains Qwen2 models"),
    "no_sft": of("sft.enabled=true", "sft.enabled", "starts from the fetched weights", "sft.enabled=false"),
    "several_cards": of("layout=dp1_mp1_pp1", "cards", "must be at least 2", "layout=dp1_mp4_pp2"),
    "generation_is_not_pipelined": of("layout.generate.pipeline_stage=2 layout.generate.data_parallel=1", "layout.generate.pipeline_stage", "must not be pipelined", "layout.generate.pipeline_stage=1"),
    "no_parallel_optimizer": of("layout.train.enable_parallel_optimizer=true", "layout.train.enable_parallel_optimizer", "build_context", "layout.train.enable_parallel_optimizer=false"),
    "cut_sequences": of("engine.seq_length=1153 layout.train.use_seq_parallel=true", "engine.seq_length", "must be a multiple of 4", "engine.seq_length=1156 layout.train.use_seq_parallel=true"),
    "one_batch": of("train.prompts_per_step=4 engine.contract=32599d0", "train.prompts_per_step", "a step is one batch", "train.prompts_per_step=2 engine.contract=32599d0"),
    "batches": of("train.prompts_per_step=3", "train.prompts_per_step", "must be a multiple of engine.chunk_size", "train.prompts_per_step=4"),
    "updates": of("layout.train.micro_batch_num=3", "train.prompts_per_step", "the compiled graph", "layout.train.micro_batch_num=2"),
    "sample_fits": of("engine.seq_length=1023", "engine.seq_length", "must fit", "engine.seq_length=1024"),
    "positions": of("engine.seq_length=32769", "engine.seq_length", "max_position_embeddings=32768", "engine.seq_length=32768"),
    "blocks": of("engine.num_blocks=31", "engine.num_blocks", "must be at least 32", "engine.num_blocks=32"),
    **{
        f"fixed_{key}": of(f"train.{key}={wrong}", f"train.{key}", "must be", f"train.{key}={right}")
        for key, wrong, right in (
            ("loss_type", "dapo", "grpo"), ("schedule", "constant", "cosine"), ("scale_advantages", "false", "true"),
            ("num_iterations", "2", "1"), ("max_grad_norm", "0.5", "1.0"), ("weight_decay", "0.0", "0.1"),
            ("importance_sampling_level", "sequence", "token"), ("use_bias_correction_kl", "true", "false"),
            ("mask_truncated_completions", "true", "false"), ("resample_rounds", "1", "0"),
            ("validate_every", "1", "0"), ("max_kl", "1.0", "null"), ("resume_from", "/x", "null"),
        )
    },
    "mixup": of("train.ref_model_sync_steps=5", "train.ref_model_mixup_alpha", "copies the policy as it is", "train.ref_model_sync_steps=5 train.ref_model_mixup_alpha=1.0"),
    "optimizer_on_the_host": of("layout.train.opt_offload=true", "layout.train.opt_offload", "adam.py:161", "layout.train.opt_offload=false"),
    "lower_end": of("train.final_share=1.0", "train.final_share", "must be below 1", "train.final_share=0.5"),
    "min_p": of("rollout.min_p=0.1", "rollout.min_p", "knows no min_p", "rollout.min_p=null"),
    "its_rewards": of("reward.weights=[1.0,0.5]", "reward.functions", "each with weight 1", "reward.weights=[1.0,1.0]"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_the_smallest_config_that_breaks_it_and_the_smallest_that_keeps_it(name: str) -> None:
    check(RULES[name])


def test_every_rule_has_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_entry((rules,), RULES, monkeypatch) == []


def test_what_it_forbids_has_a_source() -> None:
    assert without_source(RULES) == []
