"""Every family's weights there and back, from files that transformers wrote."""

import json

import numpy as np
import pytest

from stages.base.errors import ConfigError
from stages.fetch.builtin import write_config
from stages.fetch.local import check_config
from stages.models.config import RopeScalingConfig
from stages.models.families import weights_of
from stages.weights.convert import convert_directory
from stages.weights.export import export_directory
from stages.weights.merge import merge_directory
from stages.weights.names import read_shape
from stages.weights.reshard import reshard_directory
from stages.weights.split import split_directory
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import make_layout, make_model, read_bits

LAYOUTS = {
    "mp1": {},
    "mp2": {"model_parallel": 2},
    "mp4_pp2_offset": {"model_parallel": 4, "pipeline_stage": 2, "offset": (1, -1)},
}
MODELS = {
    "qwen3": {"family": "qwen3", "head_dim": 12, "tie_word_embeddings": True},
    "qwen3_untied": {"family": "qwen3", "head_dim": 12},
    "llama3": {"family": "llama3", "rope_scaling": RopeScalingConfig(8.0, 1.0, 4.0, 32)},
    "llama3_tied": {"family": "llama3", "tie_word_embeddings": True},
}


def write(directory, model):
    """A random model as transformers saves it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    directory.mkdir()
    write_config(model, {"bos": None, "eos": [1], "pad": 0}, directory)
    config = transformers.AutoConfig.from_pretrained(directory)
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in made.parameters():  # norms and biases too
        torch.nn.init.normal_(parameter)
    made.save_pretrained(directory)
    return json.loads((directory / "config.json").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back_is_exact(tmp_path, name):
    model, hf = make_model(**MODELS[name]), tmp_path / "hf"
    config = write(hf, model)
    check_config(config, model, hf)
    assert weights_of(read_shape(hf)) == weights_of(model)
    source = read_bits(hf / "model.safetensors")
    assert source.keys() == {part for weight in weights_of(model) for part in weight.parts}
    convert_directory(hf, tmp_path / "complete", False, None)
    for layout, degrees in LAYOUTS.items():
        own = tmp_path / layout
        write_strategy(model, make_layout(**degrees), own / "strategy")
        split_directory(tmp_path / "complete", own / "strategy", own / "ranks")
        merge_directory(own / "ranks", own / "strategy", own / "merged")
        export_directory(own / "merged", hf, own / "back")
        found = read_bits(own / "back" / "model.safetensors")
        assert found.keys() == source.keys()
        assert all(np.array_equal(found[key], array) for key, array in source.items())
    moved = tmp_path / "moved"
    reshard_directory(
        *(tmp_path / path for path in ("mp2/ranks", "mp2/strategy", "mp4_pp2_offset/strategy")), moved
    )
    for rank in moved.iterdir():
        wanted = tmp_path / "mp4_pp2_offset/ranks" / rank.name / "model.safetensors"
        assert (rank / "model.safetensors").read_bytes() == wanted.read_bytes()


def test_another_architecture_is_refused_with_both_names(tmp_path):
    config = write(tmp_path / "hf", make_model(family="llama3"))
    with pytest.raises(ConfigError, match=r"LlamaForCausalLM.*must be Qwen3ForCausalLM"):
        check_config(config, make_model(family="qwen3", head_dim=8), tmp_path)


def test_positions_and_heads_that_config_json_says_otherwise(tmp_path):
    config = write(tmp_path / "hf", make_model(**MODELS["llama3"]))
    with pytest.raises(ConfigError, match=r"model\.rope_scaling: disagrees") as told:
        check_config(config, make_model(family="llama3", head_dim=8), tmp_path)
    assert {problem.path for problem in told.value.problems} == {"model.head_dim", "model.rope_scaling"}
    yarn = config | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}
    with pytest.raises(ConfigError, match="yarn"):
        check_config(yarn, make_model(family="llama3"), tmp_path)


def test_a_family_that_is_not_fused_is_refused_so(tmp_path):
    write(tmp_path / "hf", make_model(**MODELS["qwen3"]))
    with pytest.raises(ConfigError, match="Qwen3 with q, k and v apart"):
        convert_directory(tmp_path / "hf", tmp_path / "out", True, None)
