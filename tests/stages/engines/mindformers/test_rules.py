"""Each rule of a supervised run refuses a configuration, and accepts a similar one."""

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError
from tests.stages.engines.rule_cases import check_rule

BASE = (
    "engine=mindrlhf", "model.path=/models/qwen", "engine.sft=mindformers", "model=qwen2_5_7b",
    "layout=dp1_mp4_pp2",
)  # fmt: skip
BATCH, LENGTH, UPSTREAM = "mindformers.batch_size", "tokenize.sft_length", "mindformers.upstream.train."
SCALED = (
    "model.rope_scaling="
    "{factor:8.0,low_freq_factor:1.0,high_freq_factor:4.0,original_max_position_embeddings:64}"
)
TIED = "model=qwen2_5_1_5b layout=dp2_mp2_pp1_cp2"
CUT = "layout.train.use_seq_parallel=true tokenize.sft_length="
CASES = [  # refused key, part of the source, breaking and passing overrides
    (BATCH, "base_trainer.py", "mindformers.examples_per_card=3", "mindformers.examples_per_card=4"),
    (BATCH, "PipelineCell", "mindformers.batch_size=1", "mindformers.batch_size=2"),
    ("layout.train.vocab_emb_dp", "parallel_config.py", "layout.train.vocab_emb_dp=true", ""),
    ("layout.train.expert_parallel", "stages/models", "layout.train.expert_parallel=2", ""),
    ("layout.train.context_parallel", "front end", TIED, f"{TIED} layout.train.vocab_emb_dp=true"),
    (LENGTH, "cuts evenly", f"{CUT}1025", f"{CUT}1028"),
    (LENGTH, "trained so", "tokenize.sft_length=32769", "tokenize.sft_length=32768"),
    ("model.head_dim", "llama_config.py", "model.head_dim=64", ""),
    ("model.rope_scaling", "llama_config.py", SCALED, ""),
    ("tokenize.compat", "rlhf_data.py", "tokenize.compat=mindrlhf", ""),
    (f"{UPSTREAM}runner_config.epochs", "", "+engine.upstream.train.runner_config.epochs=2",
     "+engine.upstream.train.runner_config.stop_step=2"),
    (f"{UPSTREAM}lr_schedule.warmup_steps", "", f"+{UPSTREAM}lr_schedule.warmup_steps=2",
     f"+{UPSTREAM}lr_schedule.warmup_lr_init=0.1"),
    ("mindformers.upstream.finetune.seed", "", "+mindformers.upstream.finetune.seed=2",
     f"+{UPSTREAM}remote_save_url=x"),
    ("engine.sft", "stages/models",
     "experiment=mindrlhf_deepseek_v3 model=deepseek_v3 layout=dp8_mp4_pp16", ""),
]  # fmt: skip


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    check_rule(BASE, key, source, breaking, passing)


@pytest.mark.parametrize("engine", ["local", "mindrlhf", "mindrlhf_one_stage"])
def test_the_keys_of_mindformers_are_checked_with_every_engine(engine):
    base = (
        f"engine={engine}", "engine.sft=mindformers", "model=qwen2_5_0_5b", "model.path=/models/qwen",
        "layout=dp2_mp1_pp1", "train.prompts_per_step=2", "rollout.num_generations=2",
    )  # fmt: skip
    config = load([*base, "+engine.upstream.train.monitor_config.monitor_on=true"])
    assert config.mindformers.upstream == {"train": {"monitor_config": {"monitor_on": True}}}
    with pytest.raises(ConfigError) as refused:
        load([*base, "+engine.upstream.train.seed=2"])
    assert [problem.remedy for problem in refused.value.problems] == ["set seed"]
