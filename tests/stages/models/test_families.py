"""A family is told by its config.json, and nothing outside its file asks for it by name."""

from pathlib import Path

import pytest
import yaml

from stages.models.families import FAMILIES, recognised
from stages.models.shape import FamilyName

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, "qwen2"),
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "other"}, "deepseek_v3"),
        ({"model_type": "qwen2"}, "qwen2"),
        ({"architectures": "Qwen2ForCausalLM", "model_type": 7}, None),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "llama3"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "qwen3"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "qwen3_moe"),
        ({"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}, None),
        ({}, None),
    ],
)
def test_a_config_json_identifies_its_family(config, name):
    family = recognised(config)
    assert (family and family.name) == name


def test_each_family_has_a_configuration_and_the_names_are_all():
    groups = [yaml.safe_load(file.read_text()) for file in (ROOT / "conf/model").glob("*.yaml")]
    assert {group["family"] for group in groups if "family" in group} == set(FAMILIES)
    assert set(FamilyName.__args__) == set(FAMILIES)
