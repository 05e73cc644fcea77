"""DeepSeek-V3's weights as mindformers' own scripts convert them, which are run."""

import sys

import numpy as np
import pytest

from stages.weights.convert import convert_directory
from stages.weights.tensors import load
from tests.stages.weights.checkpoints import assert_same, make_model, read_bits, read_directory
from tests.stages.weights.test_families import MODELS, add_next, write
from tests.upstream.programs import run

pytestmark = [pytest.mark.upstream, pytest.mark.core]
MODEL = make_model(**MODELS["deepseek_v3"])


def convert_by_mindformers(home, script, at_hugging_face, in_mindspore, next_layers):
    """Run convert_weight.py or convert_reversed.py for MODEL; `next_layers` predict a second token ahead."""
    extras = MODEL.extras
    options = {
        "torch_ckpt_path": at_hugging_face, "mindspore_ckpt_path": in_mindspore, "use_grouped_gemm": False,
        "num_routed_experts": extras.n_routed_experts, "num_layers": MODEL.num_hidden_layers,
        "num_nextn_predict_layers": next_layers, "first_k_dense_replace": extras.first_k_dense_replace,
        "n_head": MODEL.num_attention_heads, "qk_nope_head_dim": extras.qk_nope_head_dim,
        "qk_rope_head_dim": extras.qk_rope_head_dim, "v_head_dim": extras.v_head_dim,
    }  # fmt: skip
    arguments = [f"--{key}={value}" for key, value in options.items()]
    run(sys.executable, home / "research/deepseek3" / script, *arguments, env={"PYTHONPATH": str(home)})


def test_deepseek_v3_is_converted_as_by_mindformers(checkout, tmp_path, capsys):
    write(tmp_path / "hf", MODEL)
    add_next(tmp_path / "hf", MODEL)
    home = checkout("mindformers-051d65f")
    convert_by_mindformers(home, "convert_weight.py", tmp_path / "hf", tmp_path / "theirs", 1)
    convert_directory(tmp_path / "hf", tmp_path / "ours", False, None)
    assert f"model.layers.{MODEL.num_hidden_layers}.* is left out" in capsys.readouterr().err
    reference, actual = load(tmp_path / "theirs"), load(tmp_path / "ours")
    layer = f"model.layers.{MODEL.num_hidden_layers}."
    trained = {name for name in reference if not name.startswith((layer, "model.mtp_"))}
    assert actual.keys() == trained and len(reference) > len(trained)
    for name in trained:
        np.testing.assert_array_equal(actual[name], reference[name], err_msg=name)


def test_mindformers_converts_our_weights_back_to_the_original_ones(checkout, tmp_path):
    write(tmp_path / "hf", MODEL)
    convert_directory(tmp_path / "hf", tmp_path / "ours", False, None)
    home = checkout("mindformers-051d65f")
    convert_by_mindformers(home, "convert_reversed.py", tmp_path / "back", tmp_path / "ours", 0)
    assert_same(read_directory(tmp_path / "back"), read_bits(tmp_path / "hf/model.safetensors"))
