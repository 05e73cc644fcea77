"""A rehearsal's small configurations break no rule, and keep what the run's layout cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import rules
from pipeline.config import Config, load
from stages.config import read
from stages.mindspeed_rl.job import layers_of
from stages.mindspeed_rl.rehearsal.shrink import ROWS, on_one_card, shrink

RECIPES = (
    ["model=qwen2_5_7b", "layout=dp4_mp2_pp2", "layout.generate.model_parallel=1"],
    ["model=qwen2_5_7b", "layout=dp1_mp4_pp3", "layout.train.offset=[1,0,0]"],
    ["model=qwen2_5_32b", "layout=dp1_mp4_pp4", "layout.train.offset=[0,1,0,-1]"],
    ["model=qwen2_5_0_5b", "layout=dp2_mp2_pp1", "engine.use_integrated_worker=false"],
    ["model=qwen2_5_7b", "layout=dp2_mp2_pp2_cp2", "+engine.env.PYTHONPATH=/own"],
)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe[1])
def test_the_small_configurations_break_no_rule(recipe: list[str]) -> None:
    own = ["train.prompts_per_step=384", "launcher.cards_per_node=64", "dataset=gsm8k"]
    config = load(["engine=mindspeed_rl", "model.path=/models/qwen", *own, *recipe])
    values = config.plain()
    small = shrink(values, Path("/scratch/model"))
    assert config.plain() == values  # the run's own stays
    made = read(Config, small)
    assert rules.check(made) == []
    assert made.layout == config.layout and made.cards == config.cards
    assert made.dataset.train_rows == ROWS and made.model.vocab_size == config.model.vocab_size
    assert bool(layers_of(made.model, made.layout.train)) == bool(
        layers_of(config.model, config.layout.train)
    )
    assert str(made.engine.env["PYTHONPATH"]).split(":")[1:] == (["/own"] if "env" in recipe[-1] else [])
    alone = read(Config, on_one_card(small))
    assert rules.check(alone) == []
    assert alone.layout.train.cards == 1 and alone.model == made.model
