"""Every family's weights there and back, from files that transformers wrote."""

import json

import numpy as np
import pytest

from stages.base.errors import ConfigError
from stages.fetch.builtin import write_config
from stages.fetch.local import check_config
from stages.models.families import family_of, weights_of
from stages.models.shape import DeepseekV3Config, Qwen3MoeConfig, RopeScalingConfig
from stages.weights.complete import merge_directory
from stages.weights.convert import convert_directory
from stages.weights.export import export_directory
from stages.weights.names import read_shape
from stages.weights.split import reshard_directory, split_directory
from stages.weights.strategy.stage import write_strategy
from stages.weights.tensors import load, write_rank
from tests.stages.weights.checkpoints import (
    make_layout,
    make_model,
    random_bits,
    read_bits,
    write_safetensors,
)

LAYOUTS = {
    "mp1": {},
    "mp2": {"model_parallel": 2},
    "mp4_pp2_offset": {"model_parallel": 4, "pipeline_stage": 2, "offset": (1, -1)},
}
EXPERTS = {
    "dp2_mp2_ep4": {"data_parallel": 2, "model_parallel": 2, "expert_parallel": 4},
    "dp4_mp1_ep2_pp2_offset_optimizer": {
        "data_parallel": 4, "expert_parallel": 2, "pipeline_stage": 2, "offset": (1, -1),
        "enable_parallel_optimizer": True, "parallel_optimizer_threshold_kb": 0,
    },
}  # fmt: skip
DEEPSEEK = DeepseekV3Config(
    q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
    n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=2, moe_intermediate_size=12,
    first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True,
    rope_factor=4.0, rope_original_length=16, rope_beta_fast=32.0, rope_beta_slow=1.0, rope_mscale=1.0,
    rope_mscale_all_dim=1.0,
)  # fmt: skip
MODELS = {
    "qwen2": {},
    "qwen3_moe": {"family": "qwen3_moe", "head_dim": 12, "qwen3_moe": Qwen3MoeConfig(8, 2, 12, True)},
    "deepseek_v3": {"family": "deepseek_v3", "num_key_value_heads": 8, "deepseek_v3": DEEPSEEK},
    "qwen3": {"family": "qwen3", "head_dim": 12, "tie_word_embeddings": True},
    "qwen3_untied": {"family": "qwen3", "head_dim": 12},
    "llama3": {"family": "llama3", "rope_scaling": RopeScalingConfig(8.0, 1.0, 4.0, 32)},
    "llama3_tied": {"family": "llama3", "tie_word_embeddings": True},
}


def write(directory, model, std=1.0):
    """A random model as transformers saves it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    directory.mkdir()
    write_config(model, {"bos": None, "eos": [1], "pad": 0}, directory)
    config = transformers.AutoConfig.from_pretrained(directory)
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, model.torch_dtype))
    for tensor in made.state_dict().values():  # norms and biases too, and what is no parameter
        torch.nn.init.normal_(tensor, std=std)
    made.save_pretrained(directory)
    check_config(json.loads(config.to_json_string(use_diff=False)), model, directory)
    return json.loads((directory / "config.json").read_text())


def add_next(directory, model):
    """The layer that predicts a second token ahead, as DeepSeek publishes it; its tensors."""
    file = directory / "model.safetensors"
    bits = read_bits(file)
    last, layer = (f"model.layers.{model.num_hidden_layers - step}." for step in (1, 0))
    hidden = model.hidden_size
    shapes = {f"{layer}{name}.weight": (hidden,) for name in ("enorm", "hnorm", "shared_head.norm")}
    shapes |= {f"{layer}eh_proj.weight": (hidden, 2 * hidden)}
    shapes |= {name.replace(last, layer): item.shape for name, item in bits.items() if name.startswith(last)}
    added = random_bits(shapes, "bfloat16", seed=1)
    added[f"{layer}embed_tokens.weight"] = bits["model.embed_tokens.weight"]
    added[f"{layer}shared_head.head.weight"] = bits["lm_head.weight"]
    write_safetensors(file, bits | added, "bfloat16")
    return added


def test_what_is_not_trained_is_left_out_by_name_and_comes_back_from_the_reference(tmp_path, capsys):
    model, hf = make_model(**MODELS["deepseek_v3"]), tmp_path / "hf"
    write(hf, model)
    added = add_next(hf, model)
    convert_directory(hf, tmp_path / "complete", False, None)
    assert (
        f"model.layers.4.* is left out, {len(added)} tensors: the layer that predicts"
        in capsys.readouterr().err
    )
    weights = load(tmp_path / "complete")
    assert not any(".layers.4." in name for name in weights)
    weights["lm_head.weight"] += 1  # trained
    (tmp_path / "trained").mkdir()
    write_rank(weights, tmp_path / "trained/model.safetensors", "bfloat16")
    export_directory(tmp_path / "trained", hf, tmp_path / "back")
    before, after = read_bits(hf / "model.safetensors"), read_bits(tmp_path / "back/model.safetensors")
    assert before.keys() == after.keys()
    moved = {name for name, array in before.items() if not np.array_equal(array, after[name])}
    assert moved == {"lm_head.weight", "model.layers.4.shared_head.head.weight"}
    assert np.array_equal(*(after[name] for name in moved))


@pytest.mark.parametrize("changes", [*MODELS.values(), {"qkv_concat": True}], ids=[*MODELS, "fused"])
def test_there_and_back_is_exact(tmp_path, changes):
    model, hf = make_model(**changes), tmp_path / "hf"
    config = write(hf, model)
    check_config(config, model, hf)
    assert weights_of(read_shape(hf)) == weights_of(model)
    source = read_bits(hf / "model.safetensors")
    assert source.keys() == {part for weight in weights_of(model) for part in weight.parts}
    convert_directory(hf, tmp_path / "complete", model.qkv_concat, None)
    for layout, degrees in (LAYOUTS | (EXPERTS if family_of(model).experts else {})).items():
        directory = tmp_path / layout
        write_strategy(model, make_layout(**degrees), directory / "strategy")
        split_directory(tmp_path / "complete", directory / "strategy", directory / "ranks")
        merge_directory(directory / "ranks", directory / "strategy", directory / "merged")
        export_directory(directory / "merged", hf, directory / "back")
        result = read_bits(directory / "back" / "model.safetensors")
        assert result.keys() == source.keys()
        assert all(np.array_equal(result[key], array) for key, array in source.items())
    moved = tmp_path / "moved"
    reshard_directory(
        *(tmp_path / path for path in ("mp2/ranks", "mp2/strategy", "mp4_pp2_offset/strategy")), moved
    )
    for rank in moved.iterdir():
        expected = tmp_path / "mp4_pp2_offset/ranks" / rank.name / "model.safetensors"
        assert (rank / "model.safetensors").read_bytes() == expected.read_bytes()


def test_positions_and_heads_that_disagree_with_config_json_are_refused(tmp_path):
    config = write(tmp_path / "hf", make_model(**MODELS["llama3"]))
    with pytest.raises(ConfigError, match=r"model\.rope_scaling: disagrees") as output:
        check_config(config, make_model(family="llama3", head_dim=8), tmp_path)
    assert {problem.path for problem in output.value.problems} == {"model.head_dim", "model.rope_scaling"}
    yarn = config | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}
    with pytest.raises(ConfigError, match="yarn"):
        check_config(yarn, make_model(family="llama3"), tmp_path)
