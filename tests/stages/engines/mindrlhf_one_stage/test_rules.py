"""Each rule of grpo_one_stage.py refuses a configuration, and accepts a similar one."""

import pytest

from tests.stages.engines.mindrlhf.test_rules import CUT, MICRO, PROMPTS, RATE, ROW, SHARED
from tests.stages.engines.rule_cases import check_rule

BASE = (
    "engine=mindrlhf_one_stage", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp1_mp4_pp2",
    "train.prompts_per_step=2", "rollout.num_generations=4",
)  # fmt: skip
SCRIPT = "grpo_one_stage.py"
CASES = [  # refused key, part of the source, breaking and passing overrides
    *SHARED,
    ("cards", SCRIPT, "layout=dp1_mp1_pp1", ""),
    ("layout.train.enable_parallel_optimizer", "build_context",
     "layout.train.enable_parallel_optimizer=true", ""),
    ("layout.generate.enable_parallel_optimizer", "build_context",
     "layout.generate.enable_parallel_optimizer=true", ""),
    (ROW, "cuts evenly", f"{CUT}1153", f"{CUT}1156"),
    (ROW, "combine_grpo_config", "engine.seq_length=1023", "engine.seq_length=1024"),
    (PROMPTS, "init_grpo_dataset", f"{MICRO}=3", ""),
    ("engine.num_blocks", "block_tables.py", "engine.num_blocks=31", "engine.num_blocks=32"),
    ("train.schedule", RATE, "train.schedule=constant", ""),
    ("train.num_iterations", SCRIPT, "train.num_iterations=2", ""),
    ("train.weight_decay", "set_weight_decay", "train.weight_decay=0.0", ""),
    ("train.final_share", RATE, "train.final_share=1.0", "train.final_share=0.5"),
    ("rollout.min_p", "generation_config.py", "rollout.min_p=0.1", ""),
    ("reward.functions", SCRIPT, "reward.weights=[1.0,0.5]", ""),
    ("engine.upstream.grpo_config.beta", "ours", "+engine.upstream.grpo_config.beta=1", ""),
]  # fmt: skip


@pytest.mark.parametrize(("key", "source", "breaking", "passing"), CASES, ids=lambda text: text[:60])
def test_each_rule_refuses_one_configuration_and_accepts_another(key, source, breaking, passing):
    check_rule(BASE, key, source, breaking, passing)
