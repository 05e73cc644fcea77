"""Converted weights in mindformers' own networks give transformers' logits, in float32."""

import json
from pathlib import Path

import numpy as np
import pytest

from stages.engines.mindformers.rehearsal import shim
from stages.models.families import network_of
from stages.models.family import NetworkInputs, TokenIds
from stages.weights.convert import convert_directory
from tests.stages.weights.checkpoints import make_layout, make_model
from tests.stages.weights.test_families import MODELS, write
from tests.upstream.programs import run

pytestmark = pytest.mark.upstream
LENGTH = 48
"""Beyond the original length of MODELS' stretched positions, 32."""


def llama_config(model):
    values = {
        "hidden_size": model.hidden_size, "num_layers": model.num_hidden_layers,
        "num_heads": model.num_attention_heads, "n_kv_heads": model.num_key_value_heads,
        "intermediate_size": model.intermediate_size, "vocab_size": model.vocab_size,
        "max_position_embedding": model.max_position_embeddings, "rms_norm_eps": model.rms_norm_eps,
        "theta": model.rope_theta, "tie_word_embeddings": model.tie_word_embeddings,
        "qkv_concat": model.qkv_concat, "compute_dtype": "float32", "param_init_type": "float32",
        "checkpoint_name_or_path": "",
    }  # fmt: skip
    if model.rope_scaling:
        scaling = {
            name: getattr(model.rope_scaling, name) for name in model.rope_scaling.__dataclass_fields__
        }
        values |= {"extend_method": "LLAMA3", "scaling_factor": scaling}
    return values


def qwen3_config(model):
    values = {
        "hidden_size": model.hidden_size, "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads, "num_key_value_heads": model.num_key_value_heads,
        "head_dim": model.head_size, "intermediate_size": model.intermediate_size,
        "vocab_size": model.vocab_size, "max_position_embeddings": model.max_position_embeddings,
        "rms_norm_eps": model.rms_norm_eps, "rope_theta": model.rope_theta,
        "tie_word_embeddings": model.tie_word_embeddings,
    }  # fmt: skip
    kinds = ("compute_dtype", "params_dtype", "rotary_dtype", "layernorm_compute_dtype")
    return values | dict.fromkeys(kinds, "float32")


CASES = {
    "llama": ("llama3", False), "llama_fused": ("llama3", True), "llama_tied": ("llama3_tied", False),
    "qwen3": ("qwen3_untied", False), "qwen3_tied": ("qwen3", False),
}  # fmt: skip

MARKS = dict.fromkeys(("llama", "qwen3"), pytest.mark.core)
"""One case of each network runs in CI."""


@pytest.mark.parametrize("case", [pytest.param(name, marks=MARKS.get(name, ())) for name in CASES])
def test_they_are_transformers(mindformers, interpreter, case, tmp_path):
    """Llama's training network, and the one of Qwen3, which mindformers has for inference alone."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    name, concat = CASES[case]
    model = make_model(**MODELS[name], qkv_concat=concat, torch_dtype="float32")
    write(tmp_path / "hf", model, std=0.3)
    convert_directory(tmp_path / "hf", tmp_path / "complete", concat, None)
    row = np.random.default_rng(0).integers(1, model.vocab_size, LENGTH)  # 0 pads, and is masked
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        expected = reference(torch.from_numpy(row)[None]).logits[0].numpy()
    is_llama = model.family == "llama3"
    values = {
        "model": llama_config(model) if is_llama else qwen3_config(model),
        "ids": [row.tolist()] if is_llama else row.tolist(),
    }
    (tmp_path / "case.json").write_text(json.dumps(values))
    program = Path(__file__).with_name("llama_program.py" if is_llama else "qwen3_program.py")
    env = shim.environment(tmp_path / "answers.json", {"PYTHONPATH": str(mindformers)})
    run(interpreter("mindspore"), program, "case.json", "complete", "logits.npy", env=env, cwd=tmp_path)
    result = np.load(tmp_path / "logits.npy").reshape(expected.shape)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)


def deepseek_case(model, row):
    """Return the case of deepseek_program.py: as mindrlhf's files are rendered, without dropped tokens."""
    network = network_of(model)
    inputs = NetworkInputs(model, make_layout(), len(row), TokenIds(2, (1,), 0))
    config, experts = network.training(inputs), network.experts.training(inputs)
    dropped = ("type", "auto_register")
    # an expert takes no more than its capacity, and the others' tokens pass it by: here it takes all
    moe = {**experts, "capacity_factor": float(model.extras.n_routed_experts)}
    return {"model": {k: v for k, v in config.items() if k not in dropped}, "moe": moe, "ids": [row.tolist()]}


@pytest.mark.parametrize(
    "left_out", [pytest.param("nothing", marks=pytest.mark.core), "stretching", "groups"]
)
def test_deepseek_v3_in_training_is_transformers(checkout, interpreter, left_out, tmp_path):
    """As mindrlhf's file is rendered; without what the shipped one leaves out it is another model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = make_model(**MODELS["deepseek_v3"], torch_dtype="float32", param_init_type="float32")
    write(tmp_path / "hf", model, std=0.3)
    convert_directory(tmp_path / "hf", tmp_path / "complete", False, None)
    row = np.random.default_rng(0).integers(1, model.vocab_size, LENGTH)
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        expected = reference(torch.from_numpy(row)[None]).logits[0].numpy()
    case = deepseek_case(model, row)
    if left_out == "stretching":
        case["model"] |= {"extend_method": "None", "scaling_factor": None}
    elif left_out == "groups":
        del case["moe"]["topk_method"]
    (tmp_path / "case.json").write_text(json.dumps(case))
    home, program = checkout("mindformers-051d65f"), Path(__file__).with_name("deepseek_program.py")
    env = shim.environment(tmp_path / "answers.json", {"PYTHONPATH": str(home)})
    run(interpreter("mindspore"), program, "case.json", "complete", "logits.npy", env=env, cwd=tmp_path)
    error = np.abs(np.load(tmp_path / "logits.npy").reshape(expected.shape) - expected).max()
    assert np.abs(expected).max() > 1
    assert error < 1e-4 if left_out == "nothing" else error > 0.1
