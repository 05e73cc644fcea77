"""convert renames and checks; weights that do not fit the model config are refused by file and tensor."""

import json

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.convert import convert_directory, converted, run
from tests.stages.fetch.settings import context
from tests.stages.weights.checkpoints import make_model, read_bits, write_hf, write_safetensors


def _context(tmp_path, model, materialize=False, dtype=None):
    settings = {"materialize": materialize, "dtype": dtype, "format": "safetensors"}
    return context(tmp_path, "convert", {"model": vars(model), "convert": settings}, fetch=tmp_path / "hf")


def test_fused_tensors_by_hand(tmp_path):
    """w_qkv: per key-value head its two queries, its key, its value; w_gate_hidden: rows in turn."""
    model = make_model(qkv_concat=True)  # 8 query heads, 4 key-value heads of 4 rows
    bits = write_hf(tmp_path / "hf", model)
    convert_directory(tmp_path / "hf", tmp_path / "ms", True, None)
    result = read_bits(tmp_path / "ms" / "model-00001-of-00001.safetensors")
    layer = "model.layers.2"
    for kind in ("weight", "bias"):
        q, k, v = (bits[f"{layer}.self_attn.{item}_proj.{kind}"] for item in "qkv")
        rows = []
        for head in range(4):
            rows += [q[8 * head : 8 * head + 8], k[4 * head : 4 * head + 4], v[4 * head : 4 * head + 4]]
        np.testing.assert_array_equal(result[f"{layer}.attention.w_qkv.{kind}"], np.concatenate(rows))
    gate, up = bits[f"{layer}.mlp.gate_proj.weight"], bits[f"{layer}.mlp.up_proj.weight"]
    expected = np.stack([gate, up], axis=1).reshape(96, 32)
    np.testing.assert_array_equal(result[f"{layer}.feed_forward.w_gate_hidden.weight"], expected)
    assert f"{layer}.attention.wq.weight" not in result


def test_materialised_stage_casts(tmp_path):
    model = make_model(torch_dtype="float32")
    bits = write_hf(tmp_path / "hf", model, shards=2)
    run(_context(tmp_path, model, materialize=True, dtype="bfloat16"))
    files = json.loads((tmp_path / "convert" / "param_name_map.json").read_text())
    result = read_bits(tmp_path / "convert" / files["model.norm_out.weight"])["model.norm_out.weight"]
    values, exact = (
        (result.astype(np.uint32) << 16).view(np.float32),
        bits["model.norm.weight"].view(np.float32),
    )
    assert result.dtype == np.uint16
    np.testing.assert_allclose(values, exact, rtol=2**-8)


@pytest.mark.parametrize("qkv_concat", [False, True])
def test_a_number_that_float16_cannot_hold_is_refused_by_tensor(tmp_path, qkv_concat):
    """Without qkv_concat a parameter has one part; with it, this one's rows alternate with another's."""
    bits = write_hf(tmp_path / "hf", make_model(torch_dtype="float32"))
    bits[NAME][47, 31] = np.float32(-70000).view(np.uint32)
    write_safetensors(tmp_path / "hf" / "model.safetensors", bits, "float32")
    with pytest.raises(InputError, match=rf"model\.safetensors: {NAME}=-70000: .*float16"):
        convert_directory(tmp_path / "hf", tmp_path / "ms", qkv_concat, "float16")
    assert not (tmp_path / "ms").exists()
    convert_directory(tmp_path / "hf", tmp_path / "ms", qkv_concat, "bfloat16")


def test_tied_model_gets_no_head(tmp_path):
    """Some exports repeat the embedding as lm_head.weight; anything else is an error."""
    model = make_model(tie_word_embeddings=True)
    bits = write_hf(tmp_path / "hf", model)
    bits["lm_head.weight"] = bits["model.embed_tokens.weight"]
    write_safetensors(tmp_path / "hf" / "model.safetensors", bits, "bfloat16")
    run(_context(tmp_path, model))
    assert "lm_head.weight" not in converted(tmp_path / "convert", tmp_path / "hf", model)[0]
    bits["lm_head.weight"] = bits["model.embed_tokens.weight"] ^ 1
    write_safetensors(tmp_path / "hf" / "model.safetensors", bits, "bfloat16")
    with pytest.raises(InputError, match=r"lm_head.weight: the model config has no such tensor"):
        converted(tmp_path / "convert", tmp_path / "hf", model)


NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda bits: bits.pop(NAME), rf"hf: {NAME}: this tensor is missing"),
        (lambda bits: bits.update(extra=bits[NAME]), r"safetensors: extra: the model config has no such"),
        (lambda bits: bits.update({NAME: bits[NAME].T}), rf"{NAME}=\[32, 48\]: .* \[48, 32\]"),
    ],
)
def test_weights_that_do_not_fit_the_model(tmp_path, change, message):
    bits = write_hf(tmp_path / "hf", make_model())
    change(bits)
    write_safetensors(tmp_path / "hf" / "model.safetensors", bits, "bfloat16")
    with pytest.raises(InputError, match=message):
        run(_context(tmp_path, make_model()))
    assert not list((tmp_path / "convert").iterdir())
    with pytest.raises(InputError, match=message):
        convert_directory(tmp_path / "hf", tmp_path / "files", False, None)
    assert not (tmp_path / "files").exists()


def test_parts_of_a_fused_weight_must_have_one_dtype(tmp_path):
    hf, name = tmp_path / "hf", "model.layers.0.self_attn.k_proj.weight"
    bits = write_hf(hf, make_model())
    (hf / "model.safetensors").unlink()
    write_safetensors(hf / "k.safetensors", {name: bits.pop(name).astype(np.uint32)}, "float32")
    write_safetensors(hf / "rest.safetensors", bits, "bfloat16")
    with pytest.raises(InputError, match=r"w_qkv\.weight=\['BF16', 'F32'\]: its parts must have one dtype"):
        convert_directory(hf, tmp_path / "ms", True, None)
