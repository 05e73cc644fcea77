"""Family × engine × stage: what the page of engines says is what plan says."""

import json
import re
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.graph import plan
from stages.models.families import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs/engines/index.md").read_text(encoding="utf-8")
MODELS = {
    "qwen2": "qwen2_5_7b", "qwen3": "qwen3_8b", "qwen3_moe": "qwen3_30b_a3b", "llama3": "llama3_1_8b",
    "deepseek_v3": "deepseek_v3",
}  # fmt: skip
NEEDS = {
    "local": (),
    "mindrlhf": (),
    "mindrlhf_one_stage": ("layout=dp1_mp4_pp2", "train.prompts_per_step=2", "rollout.num_generations=4"),
    "mindspeed_rl": (),
}
DEEPSEEK = ("experiment=mindrlhf_deepseek_v3", "dataset=arith", "reward=think", "model=deepseek_v3")
STAGES = {"fetch", "convert", "tokenize", "strategy", "split", "grpo", "evaluate", "export", "report"}
"""But sft, which is a choice."""


def rows() -> dict[str, list[str]]:
    """Family -> what its table says of each engine."""
    table = PAGE.partition("| | local | mindrlhf |")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {family: cells for family, *cells in lines}


CASES = [(family, engine) for family in MODELS for engine in NEEDS]


@pytest.mark.parametrize(("family", "engine"), CASES, ids=["-".join(case) for case in CASES])
def test_plan_says_what_the_page_says(
    family: str, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = rows()[family][[*NEEDS].index(engine)]
    overrides = [f"engine={engine}", f"model={MODELS[family]}", *NEEDS[engine]]
    if family == "deepseek_v3":  # from the user's directory alone: what is in it is not looked at here
        overrides = [*(DEEPSEEK if engine == "mindrlhf" else overrides), "model.path=/models/it"]
    if cell == "–":
        trained = [one.title for one in FAMILIES.values() if engine in one.engines]
        with pytest.raises(ConfigError, match=f"engine={engine} trains") as told:
            load(overrides)
        assert all(title in str(told.value) for title in trained)
        return
    if family == "deepseek_v3":
        found = {spec.name for spec in plan(load(overrides), lambda path: "x").specs}
    else:
        assert main(["plan", "--json", f"store={tmp_path}", *overrides]) in (0, 1, 10)
        listed = json.loads(capsys.readouterr().out)["stages"]
        found = {one["stage"] for one in listed if one["state"] != "SKIPPED"}
    named = set(re.findall(r"\w+", cell.removeprefix("no ")))
    wanted = STAGES if cell == "✓" else STAGES - named if cell.startswith("no ") else named
    assert found & STAGES == wanted


def test_the_table_has_every_family_and_the_weight_tools_know_all() -> None:
    assert rows().keys() == FAMILIES.keys() == MODELS.keys()
    assert {cells[-1] for cells in rows().values()} == {"✓"}
