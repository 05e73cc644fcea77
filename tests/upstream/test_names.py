"""Our names of parameters and those of mindformers' own sources, which are read, not imported."""

import re

import pytest

from stages.models.families import weights_of
from stages.models.shape import Qwen3MoeConfig
from tests.stages.weights.checkpoints import make_model

pytestmark = [pytest.mark.upstream, pytest.mark.core]
REPLACED = re.compile(r"replace\('([^']+)', '([^']+)'\)")
FILES = {
    "qwen3": "mindformers/models/qwen3/utils.py",
    "qwen3_moe": "mindformers/models/qwen3_moe/utils.py",
    "llama3": "mindformers/models/llama/convert_weight.py",
}


@pytest.mark.parametrize("family", FILES)
def test_names_are_those_of_its_conversion(mindformers, family):
    """Each file replaces parts of a name one after the other."""
    text = (mindformers / FILES[family]).read_text(encoding="utf-8")
    pairs = REPLACED.findall(text)
    assert len(pairs) > 8
    section = {"qwen3_moe": Qwen3MoeConfig(4, 2, 8, True)} if family == "qwen3_moe" else {}
    for weight in weights_of(make_model(family=family, head_dim=8, **section)):
        for number, name in enumerate(weight.parts):
            for old, new in pairs:
                name = name.replace(old, new)
            assert name.replace(f".experts.{number}.", ".experts.") == weight.name
