"""model.path=DIR alone: the directory says which model it holds."""

import json

import pytest

from pipeline.config.load import load
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
    override, model = directory(tmp_path, **changes), make_model(**changes)
    config = load([override, "model.torch_dtype=float32"]).model
    for key in ("family", "num_hidden_layers", "head_size", "intermediate_size", "tie_word_embeddings"):
        assert getattr(config, key) == getattr(model, key)
    assert (config.source, config.torch_dtype, config.max_position_embeddings) == ("local", "float32", 4096)
    assert config.name == config.family


def test_as_transformers_5_writes_it(tmp_path):
    override = directory(tmp_path, family="llama3")
    config = json.loads((tmp_path / "config.json").read_text())
    config["dtype"] = config.pop("torch_dtype")
    config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": config.pop("rope_theta"), **SCALING}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load([override]).model
    assert model.rope_scaling is not None and model.rope_scaling.factor == 8.0
    assert (model.rope_theta, model.torch_dtype) == (1e4, "bfloat16")
