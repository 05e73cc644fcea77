"""export(convert(x)) is x; through ranks: test_families.py."""

import json

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.convert import convert_directory
from stages.weights.export import export_directory
from tests.stages.weights.checkpoints import (
    assert_same,
    make_model,
    read_bits,
    read_directory,
    write_hf,
    write_safetensors,
)

NORM, HF_NORM = "model.norm_out.weight", "model.norm.weight"


def _files(directory):
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.mark.parametrize(
    ("tied", "shards", "qkv_concat"), [(True, 3, True), (False, 1, True), (False, 3, False)]
)
def test_export_after_convert_gives_the_same_files(tmp_path, tied, shards, qkv_concat):
    write_hf(tmp_path / "hf", make_model(tie_word_embeddings=tied), shards)
    convert_directory(tmp_path / "hf", tmp_path / "ms", qkv_concat, None)
    export_directory(tmp_path / "ms", tmp_path / "hf", tmp_path / "back")
    assert _files(tmp_path / "back") == _files(tmp_path / "hf")


def test_repeated_tied_head_is_written_from_the_embedding(tmp_path):
    bits = write_hf(tmp_path / "hf", make_model(tie_word_embeddings=True, torch_dtype="float32"))
    bits["lm_head.weight"] = bits["model.embed_tokens.weight"]
    write_safetensors(tmp_path / "hf" / "model.safetensors", bits, "float32")
    convert_directory(tmp_path / "hf", tmp_path / "ms", False, None)
    trained = read_directory(tmp_path / "ms")
    changed = trained["model.tok_embeddings.embedding_weight"] ^ 1
    trained |= {"model.tok_embeddings.embedding_weight": changed, "lm_head.weight": changed ^ 1}
    write_safetensors(tmp_path / "trained" / "m.safetensors", trained, "float32")
    export_directory(tmp_path / "trained", tmp_path / "hf", tmp_path / "back")
    expected = bits | {"model.embed_tokens.weight": changed, "lm_head.weight": changed}
    assert_same(read_directory(tmp_path / "back"), expected)


def test_dtype_is_cast_and_recorded(tmp_path):
    bits = write_hf(tmp_path / "hf", make_model(torch_dtype="bfloat16"), shards=2)
    convert_directory(tmp_path / "hf", tmp_path / "ms", False, None)
    export_directory(tmp_path / "ms", tmp_path / "hf", tmp_path / "back", "float32")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["torch_dtype"] == "float32"
    index = json.loads((tmp_path / "back" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2 * sum(array.nbytes for array in bits.values())
    expected = {name: array.astype(np.uint32) << 16 for name, array in bits.items()}
    assert_same(read_directory(tmp_path / "back"), expected)


SHORT = np.zeros(31, np.uint16)


@pytest.mark.parametrize(
    ("weights", "reference", "message"),
    [
        ({"w": SHORT}, {}, "w: the model config has no such tensor"),
        ({NORM: None}, {}, f"{NORM}: this tensor is missing"),
        ({NORM: SHORT}, {}, rf"{NORM}=\[31\]: the model config requires \[32\]"),
        ({}, {HF_NORM: None}, f"hf: {HF_NORM}: .* is missing"),
        ({}, {HF_NORM: SHORT}, rf"{HF_NORM}=\[31\]: the model config asks for \[32\]"),
    ],
)
def test_weights_and_reference_of_different_models(tmp_path, weights, reference, message):
    """`weights` and `reference` are changes; None removes a tensor."""
    write_hf(tmp_path / "hf", make_model())
    convert_directory(tmp_path / "hf", tmp_path / "ms", False, None)
    for source, changes, file in (
        ("ms", weights, tmp_path / "trained" / "m.safetensors"),
        ("hf", reference, tmp_path / "hf" / "model.safetensors"),
    ):
        bits = read_directory(tmp_path / source) | changes
        write_safetensors(
            file, {name: array for name, array in bits.items() if array is not None}, "bfloat16"
        )
    with pytest.raises(InputError, match=message):
        export_directory(tmp_path / "trained", tmp_path / "hf", tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "ms", "trained"]


@pytest.mark.parametrize("file", ["ms/model-00001-of-00001.safetensors", "hf/model.safetensors"])
def test_weights_that_cannot_be_cast_are_refused(tmp_path, file):
    write_hf(tmp_path / "hf", make_model())
    convert_directory(tmp_path / "hf", tmp_path / "ms", False, None)
    write_safetensors(tmp_path / file, read_bits(tmp_path / file), "int16")
    with pytest.raises(InputError, match=f"{file}: .*must be F32, BF16 or F16"):
        export_directory(tmp_path / "ms", tmp_path / "hf", tmp_path / "back")
