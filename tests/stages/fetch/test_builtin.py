import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from stages.fetch.builtin import write_model
from tests.stages.fetch.settings import model

IDS = {"bos": 300, "eos": [302, 300], "pad": 300}


def written(tmp_path, seed=0, **changes):
    write_model(model(**changes), IDS, seed, tmp_path)
    return load_file(tmp_path / "model.safetensors")


def test_weights_are_normally_distributed_biases_0_and_norms_1(tmp_path):
    weights = written(tmp_path, hidden_size=64, vocab_size=2000)
    table = weights["model.embed_tokens.weight"]
    assert (table.shape, table.dtype) == ((2000, 64), np.float32)
    assert table.std() == pytest.approx(0.02, rel=0.02)
    assert abs(table.mean()) < 1e-3
    assert not weights["model.layers.1.self_attn.k_proj.bias"].any()
    assert (weights["model.norm.weight"] == 1).all()
    assert weights["model.layers.0.self_attn.k_proj.weight"].shape == (32, 64)
    assert "lm_head.weight" not in weights


def test_an_untied_head_is_written(tmp_path):
    assert written(tmp_path, tie_word_embeddings=False)["lm_head.weight"].shape == (512, 16)


def test_weights_depend_on_the_seed_and_not_on_the_number_of_layers(tmp_path):
    first = written(tmp_path)
    assert all((value == first[name]).all() for name, value in written(tmp_path).items())
    deeper = written(tmp_path, num_hidden_layers=3)
    assert all((deeper[name] == value).all() for name, value in first.items())
    second = written(tmp_path, seed=1)
    assert (second["model.embed_tokens.weight"] != first["model.embed_tokens.weight"]).any()


@pytest.mark.parametrize(("dtype", "code"), [("bfloat16", "BF16"), ("float16", "F16")])
def test_half_precision_files_hold_the_rounded_values(tmp_path, dtype, code):
    torch = pytest.importorskip("torch")
    exact = written(tmp_path)
    write_model(model(torch_dtype=dtype), IDS, 0, tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        for name, value in exact.items():
            assert file.get_slice(name).get_dtype() == code
            expected = torch.from_numpy(value).to(getattr(torch, dtype))
            assert torch.equal(file.get_tensor(name), expected)


def test_config_files_hold_shape_and_ids(tmp_path):
    written(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert (config["hidden_size"], config["torch_dtype"]) == (16, "float32")
    assert (config["eos_token_id"], generation["eos_token_id"]) == (302, [302, 300])
    assert generation["pad_token_id"] == 300


def test_explicit_ids_win(tmp_path):
    written(tmp_path, eos_token_id=[7, 8], pad_token_id=9, bos_token_id=10)
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [7, 8]
    assert (generation["pad_token_id"], generation["bos_token_id"]) == (9, 10)


@pytest.mark.parity
def test_transformers_loads_every_tensor(tmp_path):
    transformers = pytest.importorskip("transformers")
    weights = written(tmp_path, tie_word_embeddings=False)
    loaded, info = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    state = loaded.state_dict()
    assert set(state) == set(weights)
    assert all((state[name].numpy() == value).all() for name, value in weights.items())
