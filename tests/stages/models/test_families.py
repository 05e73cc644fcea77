"""A family is recognised by its config.json, and only its own file names it."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from stages.models.families import FAMILIES, recognised
from stages.models.shape import FamilyName

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, "qwen2"), ({"model_type": "qwen2"}, "qwen2"), ({}, None),
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "other"}, "deepseek_v3"),
        ({"architectures": "Qwen2ForCausalLM", "model_type": 7}, None),
        ({"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}, None),
    ],
)  # fmt: skip
def test_a_config_json_identifies_its_family(config, name):
    family = recognised(config)
    assert (family and family.name) == name


def test_each_family_has_a_configuration_and_the_names_are_all():
    groups = [yaml.safe_load(file.read_text()) for file in (ROOT / "conf/model").glob("*.yaml")]
    assert {group["family"] for group in groups if "family" in group} == set(FAMILIES)
    assert set(FamilyName.__args__) == set(FAMILIES)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen3_0_6b", 0.596), ("qwen3_1_7b", 1.72), ("qwen3_4b", 4.02), ("qwen3_8b", 8.19),
        ("qwen3_14b", 14.8), ("qwen3_32b", 32.8), ("llama3_1_8b", 8.03), ("llama3_1_70b", 70.6),
        ("llama3_2_1b", 1.24), ("llama3_2_3b", 3.21), ("llama3_3_70b", 70.6),
        ("qwen2_5_0_5b", 0.494), ("qwen2_5_1_5b", 1.54), ("qwen2_5_3b", 3.09), ("qwen2_5_7b", 7.61),
        ("qwen2_5_14b", 14.77), ("qwen2_5_32b", 32.76), ("qwen2_5_72b", 72.7),
    ],
)  # fmt: skip
def test_configurations_have_the_parameters_of_their_model_cards(name, billions):
    model = load([f"model={name}"]).model
    assert model.num_parameters == pytest.approx(billions * 1e9, rel=0.005)
