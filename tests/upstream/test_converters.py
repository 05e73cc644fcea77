"""DeepSeek-V3's weights as mindformers' own script converts them, which is run."""

import sys

import numpy as np
import pytest

from stages.weights.convert import convert_directory
from stages.weights.tensors import load
from tests.stages.weights.checkpoints import make_model
from tests.stages.weights.test_families import MODELS, add_next, write
from tests.upstream.programs import run

pytestmark = [pytest.mark.upstream, pytest.mark.core]


def test_deepseek_v3_is_converted_as_by_mindformers(checkout, tmp_path, capsys):
    model = make_model(**MODELS["deepseek_v3"])
    extras = model.extras
    home = checkout("mindformers-051d65f")
    write(tmp_path / "hf", model)
    add_next(tmp_path / "hf", model)
    options = {
        "torch_ckpt_path": tmp_path / "hf", "mindspore_ckpt_path": tmp_path / "theirs",
        "use_grouped_gemm": False, "num_routed_experts": extras.n_routed_experts,
        "num_layers": model.num_hidden_layers, "num_nextn_predict_layers": 1,
        "first_k_dense_replace": extras.first_k_dense_replace, "n_head": model.num_attention_heads,
        "qk_nope_head_dim": extras.qk_nope_head_dim, "qk_rope_head_dim": extras.qk_rope_head_dim,
        "v_head_dim": extras.v_head_dim,
    }  # fmt: skip
    script = home / "research/deepseek3/convert_weight.py"
    arguments = [f"--{key}={value}" for key, value in options.items()]
    run(sys.executable, script, *arguments, env={"PYTHONPATH": str(home)})
    convert_directory(tmp_path / "hf", tmp_path / "ours", False, None)
    assert f"model.layers.{model.num_hidden_layers}.* is left out" in capsys.readouterr().err
    reference, actual = load(tmp_path / "theirs"), load(tmp_path / "ours")
    layer = f"model.layers.{model.num_hidden_layers}."
    trained = {name for name in reference if not name.startswith((layer, "model.mtp_"))}
    assert actual.keys() == trained and len(reference) > len(trained)
    for name in trained:
        np.testing.assert_array_equal(actual[name], reference[name], err_msg=name)
