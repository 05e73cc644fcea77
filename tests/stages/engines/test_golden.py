"""Rendered files of recipes that people run, compared with tests/data/golden: is a difference meant?

The programs themselves read rendered files in tests/upstream.
"""

from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.engines.mindformers import stage as mindformers
from stages.engines.mindrlhf import stage as mindrlhf
from stages.engines.mindrlhf_one_stage import stage as one_stage
from stages.engines.mindspeed_rl import train as mindspeed_rl

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
INPUTS = {"tokenize": Path("/data"), "fetch": Path("/models/qwen")}
SEVEN = ("model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp1_mp4_pp2")
SHIPPED = (  # by MindSpeed-RL
    "engine=mindspeed_rl", "model.path=/models/qwen", "model.variant=base", "dataset=deepscaler",
    "launcher.cards_per_node=16",
)  # fmt: skip
SUPERVISED = ("engine=mindrlhf", "engine.sft=mindformers")
CASES = {
    "mindformers_7b_8cards": (mindformers, (*SUPERVISED, *SEVEN, "tokenize.sft_length=4096")),
    "mindformers_0_5b_1card": (
        mindformers,
        (*SUPERVISED, "model=qwen2_5_0_5b", SEVEN[1], "layout=dp1_mp1_pp1", "tokenize.sft_length=2048"),
    ),
    "mindrlhf_7b_8cards": (mindrlhf, ("engine=mindrlhf", *SEVEN)),
    "mindrlhf_32b_32cards": (
        mindrlhf,
        ("engine=mindrlhf", "model=qwen2_5_32b", SEVEN[1], "layout=dp1_mp8_pp4",
         "layout.train.recompute=true"),
    ),
    "mindrlhf_deepseek_v3_512cards": (
        mindrlhf, ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek", "dataset=arith")
    ),
    "mindrlhf_one_stage_7b_8cards": (one_stage, ("engine=mindrlhf_one_stage", *SEVEN)),
    "mindspeed_rl_7b_a3": (
        mindspeed_rl, (*SHIPPED, "model=qwen2_5_7b", "layout=dp4_mp4_pp1", "engine.micro_batch_size=1")
    ),
    "mindspeed_rl_32b_a3": (
        mindspeed_rl,
        (*SHIPPED, "model=qwen2_5_32b", "layout=dp1_mp4_pp4", "layout.train.offset=[0,1,0,-1]",
         "layout.generate.model_parallel=2", "train.prompts_per_step=64", "rollout.num_generations=16",
         "tokenize.max_prompt_length=1024", "engine.micro_batch_size=2", "engine.max_num_seqs=64",
         "engine.forward_micro_batch_size=16", "engine.gpu_memory_utilization=0.6",
         "engine.verifier_function=[acc]", "train.checkpoint_every=100"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rendered_files_equal_the_golden_ones(name):
    stage, overrides = CASES[name]
    files = stage.render(load(overrides).plain(), INPUTS, Path("/run")).files
    texts = {Path(file).name: text for file, text in files.items()}
    expected = {file.name: file.read_text() for file in (GOLDEN / name).iterdir()}
    assert expected == {file: texts[file] for file in expected}
