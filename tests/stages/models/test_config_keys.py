"""Families and keys of config.json: published files are accepted, and other keys refused by name."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.load import load
from pipeline.errors import ConfigError
from stages.fetch.builtin import write_config
from stages.fetch.local import check_config
from stages.models.config_keys import described, keys_of_all, refused
from stages.models.families import FAMILIES, recognised
from stages.models.shape import FamilyName
from stages.weights.names import read_shape
from tests.stages.weights.checkpoints import make_model
from tests.stages.weights.test_families import MODELS

DATA = Path(__file__).parents[2] / "data" / "config_json"
PUBLISHED = {file.stem: json.loads(file.read_text()) for file in sorted(DATA.glob("*.json"))}
"""Files on the hub, by the shipped model that describes them."""
FAMILY_OF = {
    "qwen2": PUBLISHED["qwen2_5_7b"], "qwen3": PUBLISHED["qwen3_8b"], "qwen3_moe": PUBLISHED["qwen3_30b_a3b"],
    "llama3": PUBLISHED["llama3_2_1b"], "deepseek_v3": PUBLISHED["deepseek_v3"],
}  # fmt: skip
DEEPSEEK = ("engine=mindrlhf", "engine.load_ckpt_format=ms_safetensors")
ENGINES = {"qwen3_30b_a3b": ("engine=verl",), "deepseek_v3": DEEPSEEK}


def write(directory, config):
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_accepted(name, tmp_path):
    shipped = load([f"model={name}", f"model.path={tmp_path}", *ENGINES.get(name, ())]).model
    check_config(PUBLISHED[name], shipped, tmp_path / "config.json")
    assert read_shape(write(tmp_path, PUBLISHED[name])).hidden_size == shipped.hidden_size


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        (family, key, value)
        for key, value in [
            ("hidden_act", "gelu"), ("hidden_act", "relu"), ("attention_dropout", 0.1), ("is_causal", False),
            ("configuration_files", ["config.4.0.0.json"]), ("transformers_weights", "other.safetensors"),
            ("partial_rotary_factor", 0.5), ("final_logit_softcapping", 30.0), ("attention_multiplier", 0.1),
            ("rope_scaling", {"type": "linear", "factor": 2.0}), ("model_type", "gemma"),
            ("attention_bias", True), ("mlp_bias", True), ("is_decoder", True),
        ]
        for family in FAMILY_OF
    ] + [
        (family, "quantization_config", {"quant_method": "gptq"})
        for family in FAMILY_OF if family != "deepseek_v3"
    ] + [
        ("qwen3_moe", "mlp_only_layers", [0]), ("qwen3_moe", "decoder_sparse_step", 2),
        ("qwen3_moe", "router_aux_loss_coef", 0.01), ("qwen3_moe", "num_local_experts", 64),
        ("deepseek_v3", "scoring_func", "softmax"), ("deepseek_v3", "topk_method", "greedy"),
        ("deepseek_v3", "norm_topk_prob", False), ("deepseek_v3", "rope_interleave", False),
        ("deepseek_v3", "head_dim", 128), ("deepseek_v3", "moe_layer_freq", 2),
        ("qwen2", "layer_types", ["sliding_attention"] * 28), ("qwen2", "layer_types", ["full_attention"]),
        ("qwen2", "use_mrope", True), ("qwen2", "dual_chunk_attention_config", {"chunk_size": 8}),
        ("qwen3", "layer_types", ["chunked_attention"] * 36), ("llama3", "sliding_window", 8),
        ("llama3", "layer_types", ["full_attention"] * 16),
    ],
)  # fmt: skip
def test_a_key_that_is_not_implemented_is_refused_by_name(family, key, value, tmp_path):
    config = FAMILY_OF[family] | {key: value}
    if key == "model_type":
        config["architectures"] = FAMILY_OF[family]["architectures"]
    problems = refused(config, FAMILIES[family], "config.json")
    assert [problem.path.split(": ")[1].split(".")[0] for problem in problems] == [key]
    with pytest.raises(ConfigError, match=f"config.json: {key}"):
        read_shape(write(tmp_path, config))
    if family in ("qwen2", "qwen3", "llama3"):
        with pytest.raises(ConfigError, match=f"config.json: {key}"):
            load([f"model.path={tmp_path}"])


@pytest.mark.parity
@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama3"])
def test_keys_that_are_read_over_change_no_logits_of_transformers(name, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = make_model(**{**MODELS[name], "num_hidden_layers": 1})
    write_config(model, {"bos": None, "eos": [1], "pad": 0}, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    def logits(**changes):
        write(tmp_path, config | changes)
        described = transformers.AutoConfig.from_pretrained(tmp_path)
        torch.manual_seed(0)
        network = transformers.AutoModelForCausalLM.from_config(described, dtype=torch.float32).eval()
        with torch.no_grad():
            return network(torch.arange(9)[None], return_dict=True).logits

    expected, compared = logits(), 0
    assert not torch.equal(logits(hidden_act="gelu"), expected)
    for key in keys_of_all()["harmless"] | FAMILIES[name].harmless.keys():
        for value in (True, 2):
            try:
                actual = logits(**{key: value})
            except Exception:  # transformers refuses the file itself: there is nothing to compare
                continue
            compared += 1
            assert torch.equal(actual, expected), (key, value)
    assert compared > 60


LLAMA_2 = {
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
"""config.json of Llama 2 7B."""


def test_llama_2_needs_no_rope_theta(tmp_path):
    write(tmp_path, LLAMA_2)
    model = load([f"model.path={tmp_path}", "dataset=arith", "sft.enabled=false"]).model
    assert (model.rope_theta, model.rms_norm_eps, model.num_key_value_heads) == (10000.0, 1e-5, 32)


@pytest.mark.parity
@pytest.mark.parametrize("name", FAMILY_OF)
@pytest.mark.parametrize("key", ["rope_theta", "rms_norm_eps", "num_key_value_heads", "tie_word_embeddings"])
def test_defaults_of_missing_keys_are_those_of_transformers(name, key, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = {other: value for other, value in FAMILY_OF[name].items() if other != key}
    if key == "rope_theta" and config.get("rope_parameters"):
        config["rope_parameters"] = {k: v for k, v in config["rope_parameters"].items() if k != key}
    theirs = transformers.AutoConfig.from_pretrained(write(tmp_path, config))
    expected = theirs.rope_parameters[key] if key == "rope_theta" else getattr(theirs, key)
    assert described(config, FAMILIES[name])[key] == expected


@settings(max_examples=50)
@given(st.text(min_size=1), st.sampled_from(sorted(FAMILIES)), st.none() | st.booleans() | st.integers())
def test_an_unknown_key_is_refused(key, name, value):
    family = FAMILIES[name]
    known = {*family.keys, *family.harmless, *family.fixed({})}.union(*keys_of_all().values())
    if key not in known:
        problems = refused(FAMILY_OF[name] | {key: value}, family, "config.json")
        assert len(problems) == 1 and "not a known key" in problems[0].rule


WINDOW = {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 3}
LENGTHS = ("sft.enabled=false", "tokenize.max_prompt_length=8", "rollout.max_tokens=12")


@pytest.mark.parametrize(
    ("changes", "length", "accepted"),
    [
        (WINDOW, 12, True), (WINDOW, 13, False), (WINDOW | {"max_window_layers": 4}, 13, True),
        (WINDOW | {"use_sliding_window": False}, 13, True), (WINDOW | {"sliding_window": None}, 13, True),
        (WINDOW | {"max_window_layers": 4, "layer_types": ["sliding_attention"] * 4}, 13, False),
        (WINDOW | {"layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, 12, True),
        (WINDOW | {"layer_types": ["full_attention"] * 4}, 13, True),
        (WINDOW | {"layer_types": ["full_attention"] * 3}, 12, False),
    ],
)  # fmt: skip
def test_a_window_must_cover_the_longest_sequence(changes, length, accepted, tmp_path):
    model = make_model(vocab_size=512, max_position_embeddings=4096)
    write_config(model, {"bos": None, "eos": [1], "pad": 0}, tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    overrides = (f"model.path={tmp_path}", *LENGTHS[:2], f"rollout.max_tokens={length}")
    if accepted:
        load(overrides)
    else:
        with pytest.raises(ConfigError, match=r"model.sliding_window=20: must be at least|layer_types="):
            load(overrides)


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, "qwen2"), ({"model_type": "qwen2"}, "qwen2"), ({}, None),
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "other"}, "deepseek_v3"),
        ({"architectures": "Qwen2ForCausalLM", "model_type": 7}, None),
        ({"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}, None),
    ],
)  # fmt: skip
def test_a_config_json_identifies_its_family(config, name):
    family = recognised(config)
    assert (family and family.name) == name


def test_each_family_has_a_configuration_and_the_names_are_all():
    groups = [yaml.safe_load(file.read_text()) for file in (ROOT / "conf/model").glob("*.yaml")]
    assert {group["family"] for group in groups if "family" in group} == set(FAMILIES)
    assert set(FamilyName.__args__) == set(FAMILIES)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen3_0_6b", 0.596), ("qwen3_1_7b", 1.72), ("qwen3_4b", 4.02), ("qwen3_8b", 8.19),
        ("qwen3_14b", 14.8), ("qwen3_32b", 32.8), ("llama3_1_8b", 8.03), ("llama3_1_70b", 70.6),
        ("llama3_2_1b", 1.24), ("llama3_2_3b", 3.21), ("llama3_3_70b", 70.6),
        ("qwen2_5_0_5b", 0.494), ("qwen2_5_1_5b", 1.54), ("qwen2_5_3b", 3.09), ("qwen2_5_7b", 7.61),
        ("qwen2_5_14b", 14.77), ("qwen2_5_32b", 32.76), ("qwen2_5_72b", 72.7),
    ],
)  # fmt: skip
def test_configurations_have_the_parameters_of_their_model_cards(name, billions):
    model = load([f"model={name}"]).model
    assert model.num_parameters == pytest.approx(billions * 1e9, rel=0.005)
