"""The table of model families on the engines page agrees with plan."""

import re
from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.graph import plan
from stages import engines
from stages.catalog import STAGES
from stages.models.families import FAMILIES

ROOT = Path(__file__).parents[2]
PAGES = ("docs/engines/index.md", "docs/zh/engines/index.md")
MODELS = {
    "qwen2": "qwen2_5_7b", "qwen3": "qwen3_8b", "qwen3_moe": "qwen3_30b_a3b", "llama3": "llama3_1_8b",
    "deepseek_v3": "deepseek_v3",
}  # fmt: skip
ENGINES = ("local", "areal", "mindrlhf", "mindrlhf_one_stage", "mindspeed_rl", "verl")
NEEDS = {
    "mindrlhf_one_stage": ("layout=dp1_mp4_pp2", "train.prompts_per_step=2", "rollout.num_generations=4")
}
DEEPSEEK = ("experiment=mindrlhf_deepseek_v3", "dataset=arith", "reward=think", "model=deepseek_v3")
SFT = {"local": "sft.enabled=true"}
"""Engines that train supervised themselves, and how they are asked; the others: mindformers."""


def rows(page=PAGES[0]):
    """Family -> what its table says of each engine, in English."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("没有 ", "no ").replace("、", ", ")
    table = text.partition("<!-- families -->\n")[2].partition("\n<!-- end -->")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {family: cells for family, *cells in lines}


CASES = [(family, engine) for family in MODELS for engine in ENGINES]


@pytest.mark.parametrize(("family", "engine"), CASES, ids=["-".join(case) for case in CASES])
def test_plan_agrees_with_the_table_of_the_page(family, engine):
    cell = rows()[family][ENGINES.index(engine)]
    overrides = [f"engine={engine}", f"model={MODELS[family]}", *NEEDS.get(engine, ())]
    if family == "deepseek_v3":  # from the user's directory alone: what is in it is not looked at here
        overrides = [*(DEEPSEEK if engine == "mindrlhf" else overrides), "model.path=/models/it"]
    supervised = [*overrides, SFT.get(engine, "engine.sft=mindformers")]
    if cell == "–":
        trained = [item.title for item in FAMILIES.values() if engines.get(engine).trains(item)]
        with pytest.raises(ConfigError, match=f"engine={engine} trains") as refused:
            load(overrides)
        assert all(title in str(refused.value) for title in trained)
        return
    named = set(re.findall(r"\w+", cell.removeprefix("no ")))
    expected = set(STAGES) if cell == "✓" else STAGES.keys() - named if cell.startswith("no ") else named
    if "sft" in expected:
        overrides = supervised
    else:
        with pytest.raises(ConfigError, match=r"engine\.sft=mindformers: (trains Qwen2|must be one of off)"):
            load(supervised)
    assert {spec.name for spec in plan(load(overrides), lambda path: "x").specs} == expected


def test_the_table_has_every_family_in_both_languages():
    assert rows().keys() == FAMILIES.keys() == MODELS.keys()
    assert {cells[-1] for cells in rows().values()} == {"✓"}
    assert {page for page in PAGES if rows(page) != rows()} == set()
