"""export(convert(x)) is x, and through ranks too."""

import json

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.convert import convert_directory
from stages.weights.export import export, export_directory
from stages.weights.sources import open_ranks
from stages.weights.split import split_directory
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import make_layout, make_model, read_bits, write_hf, write_safetensors


def _files(directory):
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("qkv_concat", [True, False])
def test_export_after_convert_gives_the_same_files(tmp_path, tied, shards, qkv_concat):
    write_hf(tmp_path / "hf", make_model(tie_word_embeddings=tied), shards)

    convert_directory(tmp_path / "hf", tmp_path / "ms", qkv_concat, None)
    export_directory(tmp_path / "ms", tmp_path / "hf", tmp_path / "back")

    assert _files(tmp_path / "back") == _files(tmp_path / "hf")


@pytest.mark.parametrize("qkv_concat", [True, False])
def test_export_from_ranks_gives_the_same_files(tmp_path, qkv_concat):
    model = make_model(qkv_concat=qkv_concat)
    write_hf(tmp_path / "hf", model, shards=2)
    layout = make_layout(data_parallel=2, model_parallel=2, pipeline_stage=2, offset=(1, -1))
    write_strategy(model, layout, tmp_path / "strategy")
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "ranks")

    tensors = open_ranks(tmp_path / "ranks", read_strategy(tmp_path / "strategy"))
    (tmp_path / "back").mkdir()
    export(tensors, tmp_path / "hf", tmp_path / "back", model, None)

    assert _files(tmp_path / "back") == _files(tmp_path / "hf")


def test_a_repeated_tied_head_is_written_from_the_embedding(tmp_path):
    model = make_model(tie_word_embeddings=True, torch_dtype="float32")
    bits = write_hf(tmp_path / "hf", model)
    bits["lm_head.weight"] = bits["model.embed_tokens.weight"]
    write_safetensors(tmp_path / "hf" / "model.safetensors", bits, "float32")
    convert_directory(tmp_path / "hf", tmp_path / "ms", False, None)
    export_directory(tmp_path / "ms", tmp_path / "hf", tmp_path / "back")

    assert _files(tmp_path / "back") == _files(tmp_path / "hf")


def test_dtype_is_cast_and_told(tmp_path):
    bits = write_hf(tmp_path / "hf", make_model(torch_dtype="bfloat16"), shards=2)
    convert_directory(tmp_path / "hf", tmp_path / "ms", False, None)
    export_directory(tmp_path / "ms", tmp_path / "hf", tmp_path / "back", "float32")

    assert json.loads((tmp_path / "back" / "config.json").read_text())["torch_dtype"] == "float32"
    index = json.loads((tmp_path / "back" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2 * sum(one.nbytes for one in bits.values())
    for file in sorted((tmp_path / "back").glob("*.safetensors")):
        for name, one in read_bits(file).items():
            np.testing.assert_array_equal(one, bits[name].astype(np.uint32) << 16)


def test_weights_of_another_model_are_refused(tmp_path):
    write_hf(tmp_path / "hf", make_model())
    write_hf(tmp_path / "other", make_model(intermediate_size=64))
    convert_directory(tmp_path / "other", tmp_path / "ms", False, None)
    with pytest.raises(
        InputError, match=r"feed_forward.w1.weight=\[64, 32\]: the model config asks for \[48, 32\]"
    ):
        export_directory(tmp_path / "ms", tmp_path / "hf", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parity
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shards", [1, 3])
def test_transformers_matches_every_key(tmp_path, tied, shards):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = make_model(tie_word_embeddings=tied, torch_dtype="bfloat16")
    bits = write_hf(tmp_path / "hf", model, shards)
    write_strategy(model, make_layout(data_parallel=2, model_parallel=2), tmp_path / "strategy")
    split_directory(tmp_path / "hf", tmp_path / "strategy", tmp_path / "ranks")
    (tmp_path / "out").mkdir()
    tensors = open_ranks(tmp_path / "ranks", read_strategy(tmp_path / "strategy"))
    export(tensors, tmp_path / "hf", tmp_path / "out", model, None)

    loaded, info = transformers.Qwen2ForCausalLM.from_pretrained(
        tmp_path / "out", output_loading_info=True, dtype=torch.bfloat16
    )

    assert not any(info.values()), info
    state = loaded.state_dict()
    if tied:
        assert torch.equal(state.pop("lm_head.weight"), state["model.embed_tokens.weight"])
    assert state.keys() == bits.keys()
    for name, array in bits.items():
        np.testing.assert_array_equal(state[name].view(torch.uint16).numpy(), array, err_msg=name)
