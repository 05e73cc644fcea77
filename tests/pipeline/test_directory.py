"""model.path=DIR alone: the directory says which model it holds."""

import json

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.layouts import find
from stages.fetch.builtin import write_config
from tests.stages.weights.checkpoints import make_model

SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALING["original_max_position_embeddings"] = 32


def directory(root, **changes):
    model = make_model(vocab_size=512, max_position_embeddings=4096, **changes)
    write_config(model, {"bos": None, "eos": [1], "pad": 0}, root)
    return f"model.path={root}"


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 3},
        {"family": "qwen3", "head_dim": 24, "tie_word_embeddings": True},
        {"family": "llama3", "intermediate_size": 96},
    ],
)
def test_family_and_shape_come_from_config_json(tmp_path, changes):
    own, model = directory(tmp_path, **changes), make_model(**changes)
    config = load([own, "model.torch_dtype=float32"]).model
    for key in ("family", "num_hidden_layers", "head_size", "intermediate_size", "tie_word_embeddings"):
        assert getattr(config, key) == getattr(model, key)
    assert (config.source, config.torch_dtype, config.max_position_embeddings) == ("local", "float32", 4096)
    assert config.name == config.family


def test_as_transformers_5_writes_it(tmp_path):
    own = directory(tmp_path, family="llama3")
    config = json.loads((tmp_path / "config.json").read_text())
    config["dtype"] = config.pop("torch_dtype")
    config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": config.pop("rope_theta"), **SCALING}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load([own]).model
    assert model.rope_scaling is not None and model.rope_scaling.factor == 8.0
    assert (model.rope_theta, model.torch_dtype) == (1e4, "bfloat16")


def test_what_is_no_known_family_is_told_with_those_that_are(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["GemmaForCausalLM"]}')
    with pytest.raises(ConfigError, match=r"GemmaForCausalLM.*Qwen2ForCausalLM, Qwen3ForCausalLM"):
        load([f"model.path={tmp_path}"])


def test_layouts_of_a_thousand_cards():
    """Of 288 ways to cut 1,024 cards those that no rule forbids; every layer of a kind is laid out once."""
    asked = ["cards=1024", "model.path=/m", "train.prompts_per_step=1024", "layout.train.recompute=true"]
    choices, refused = find(["model=qwen2_5_72b", *asked])
    assert len(choices) + len(refused) == 286 and choices[0].fits == "yes"
    assert {choice.config.cards for choice in choices} == {1024}
