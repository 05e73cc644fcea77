"""A rehearsal's small configurations break no rule, and only one end of train_grpo.py is a proof."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.cli.rehearse import has_passed
from pipeline.config import rules
from pipeline.config.load import load
from pipeline.config.sections import Config
from pipeline.errors import StageFailed
from pipeline.rehearsal import mindspeed_rl
from stages.base.reader import read
from stages.engines.mindspeed_rl.job import layer_list
from stages.engines.mindspeed_rl.rehearsal.cpu import ROWS, on_single_card, shrink

RECIPES = (
    ["model=qwen2_5_7b", "layout=dp4_mp2_pp2", "layout.generate.model_parallel=1"],
    ["model=qwen2_5_7b", "layout=dp1_mp4_pp3", "layout.train.offset=[1,0,0]"],
    ["model=qwen2_5_32b", "layout=dp1_mp4_pp4", "layout.train.offset=[0,1,0,-1]"],
    ["model=qwen2_5_0_5b", "layout=dp2_mp2_pp1", "engine.use_integrated_worker=false"],
    ["model=qwen2_5_7b", "layout=dp2_mp2_pp2_cp2", "+engine.env.PYTHONPATH=/own"],
)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[1])
def test_the_small_configurations_break_no_rule(recipe):
    fixed = ["train.prompts_per_step=384", "launcher.cards_per_node=64", "dataset=gsm8k"]
    config = load(["engine=mindspeed_rl", "model.path=/models/qwen", *fixed, *recipe])
    values = config.plain()
    small = shrink(values, Path("/scratch/model"))
    assert config.plain() == values  # the run's own stays
    made = read(Config, small)
    assert rules.check(made) == []
    assert made.layout == config.layout and made.cards == config.cards
    assert made.dataset.train_rows == ROWS and made.model.vocab_size == config.model.vocab_size
    assert bool(layer_list(made.model, made.layout.train)) == bool(
        layer_list(config.model, config.layout.train)
    )
    assert str(made.engine.env["PYTHONPATH"]).split(":")[1:] == (["/own"] if "env" in recipe[-1] else [])
    single = read(Config, on_single_card(small))
    assert rules.check(single) == []
    assert single.layout.train.cards == 1 and single.model == made.model


LOGS = Path(__file__).parents[2] / "data" / "logs" / "failed"
ENDS = {
    "mindspeed_rl_msadapter": ("proven", "where MSAdapter is required"),
    "mindspeed_rl_msadapter_667a547": ("proven", "where MSAdapter is required"),
    "mindspeed_rl_static_self": ("failed", "write sock.bind(('', 0)) in _get_free_port"),
    "mindspeed_rl_rank": ("failed", "worker_0.log"),
    None: ("failed", "no machine without NPUs can train"),
}


@pytest.mark.parametrize("end", ENDS)
def test_only_the_known_failure_of_train_grpo_is_a_proof(end):
    def build(planned, stage):
        if stage == "grpo" and end is not None:
            raise StageFailed(stage, "exit code 1", LOGS / end / "worker_0.log", [])

    stages: Any = SimpleNamespace(build=build)
    proof = mindspeed_rl._started(cast(Any, None), stages)
    state, message = ENDS[end]
    assert proof.state == state and message in proof.told
    assert has_passed([proof, *mindspeed_rl.UNPROVEN]) is (state == "proven")
