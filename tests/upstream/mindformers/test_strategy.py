"""Strategy files beside those that MindSpore's own front end writes for mindformers' LlamaForCausalLM."""

import json
from pathlib import Path

import pytest

from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.strategy.golden import COPIES, fields, load
from tests.upstream.programs import run

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1200)]  # two or eight compilations
PROGRAM = Path(__file__).with_name("front_end.py")
FAMILIES = {"qwen2": {"qkv_has_bias": True}, "llama3": {"qkv_has_bias": False}}
"""Keys of LlamaConfig. mindformers has no network of Qwen3 that can be compiled for training."""


@pytest.mark.parametrize("case", sorted(COPIES.glob("*.json")), ids=lambda file: file.stem)
def test_it_is_what_the_front_end_writes(checkout, interpreter, case, tmp_path):
    """MindSpore compiles the networks of all layouts in tests/data, and the files there are its output."""
    values = json.loads(case.read_text())
    golden_family = values["model"].pop("family", "qwen2")
    models = {family: {**values["model"], **keys} for family, keys in FAMILIES.items()}
    (tmp_path / "case.json").write_text(json.dumps({"models": models, "layout": values["layout"]}))
    env = {"PYTHONPATH": str(checkout("mindformers-051d65f"))}
    arguments = "case.json", "theirs"
    run(interpreter("mindspore"), PROGRAM, *arguments, env=env, cwd=tmp_path, timeout_s=1100)
    for family in FAMILIES:
        model, layout, golden = load(case, family=family)
        written = fields(read_strategy(tmp_path / "theirs" / family))
        write_strategy(model, layout, tmp_path / "ours" / family)
        assert fields(read_strategy(tmp_path / "ours" / family)) == written
        assert golden == written or family != golden_family
