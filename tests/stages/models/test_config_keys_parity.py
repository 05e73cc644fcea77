"""Every key of transformers' configuration classes, changed one at a time, against transformers' logits.

A changed config.json must be refused when the configuration is loaded or its files are checked, or our model
must compute the log-probabilities that transformers computes from it.
"""

import copy
import json
import zlib
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from stages.base.errors import InputError, StageError
from stages.fetch.local import check_model
from stages.grpo.batch import Batch
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse
from tests.stages.grpo import small

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PROMPT, COMPLETION = 6, 10
LENGTH = PROMPT + COMPLETION
SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": 96, "max_position_embeddings": 64, "dtype": "float32",
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES = {
    "qwen2": (transformers.Qwen2Config, "Qwen2ForCausalLM", {}),
    "qwen3": (transformers.Qwen3Config, "Qwen3ForCausalLM", {"head_dim": 12}),
    "llama": (transformers.LlamaConfig, "LlamaForCausalLM", {}),
}
SCALED = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}  # fmt: skip
WINDOW = {"use_sliding_window": True, "sliding_window": LENGTH, "max_window_layers": 1, "layer_types": None}
BASES = {"plain": {}, "scaled": {"rope_parameters": SCALED}, "windowed": WINDOW}
ROPES = [
    {"rope_theta": 500.0, "rope_type": "default"}, {"type": "default", "rope_theta": 2e4}, SCALED,
    {"rope_theta": 1e4, "rope_type": "default", "factor": 4.0},
    {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0},
    {"rope_theta": 1e4, "rope_type": "dynamic", "factor": 4.0},
    {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_theta": 1e4, "rope_type": "proportional", "partial_rotary_factor": 0.5},
]  # fmt: skip
VALUES = {
    "hidden_act": ["gelu", "relu", "swish", "gelu_pytorch_tanh", "relu2", "tanh"],
    "dtype": ["bfloat16", "float16"],
    "problem_type": ["regression", "multi_label_classification"],
    "layer_types": [
        None, ["full_attention"] * 2, ["sliding_attention"] * 2, ["full_attention", "sliding_attention"],
        ["chunked_attention"] * 2,
    ],
    "rope_parameters": ROPES,
    "sliding_window": [1, LENGTH - 1, LENGTH + 1, 3, None],
    "max_window_layers": [0, 1, 2, 3],
    "id2label": [{"0": "a"}],
    "label2id": [{"a": 0}],
}  # fmt: skip
"""Valid values of keys whose type does not suggest any."""
EXTRA = {
    "rope_scaling": [*ROPES, None], "rope_theta": [500.0, 1e6, 1e4], "torch_dtype": ["bfloat16"],
    "partial_rotary_factor": [0.5, 1.0], "head_dim": [8, 16], "attention_bias": [True], "mlp_bias": [True],
    "is_causal": [False, None, True], "original_max_position_embeddings": [4], "no_such_key": [1, None],
    "logit_scale": [0.5], "final_logit_softcapping": [2.0], "attention_multiplier": [3.0],
    "residual_multiplier": [2.0], "quantization_config": [None], "use_mrope": [False, True],
    "sliding_window": [None, 4],
}  # fmt: skip
"""Keys that no signature names, of files in use and of related architectures."""


def base_config(family, changes):
    """Return a complete config.json of a small model, as the class itself describes it."""
    kind, architecture, more = FAMILIES[family]
    config = kind(**SHAPE, **more).to_dict()
    config |= {"architectures": [architecture], "rms_norm_eps": 1e-6, "dtype": "float32"}
    if "layer_types" in config:
        config["layer_types"] = None
    return config | copy.deepcopy(changes)


def further_values(key, value):
    """Return further values of a key, by its type where VALUES has none."""
    if key in VALUES:
        return VALUES[key]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 2, max(1, value // 2), None]
    if isinstance(value, float):
        return [value * 3 + 0.1, value / 2]
    if value is None:
        return [True, 1, 0.5, "x"]
    return ["x", f"{value}x"] if isinstance(value, str) else [["x"], None]


def changed_configs(family, base):
    """Yield (key, changed config) for every key of to_dict(), of the signature, and of EXTRA."""
    config = base_config(family, BASES[base])
    keys = [*config, *(field.name for field in fields(FAMILIES[family][0]) if field.name not in config)]
    values = {key: further_values(key, config.get(key)) for key in keys}
    for key, extra in EXTRA.items():
        values[key] = values.get(key, []) + extra
    for key, choices in values.items():
        for value in choices:
            yield key, {**copy.deepcopy(config), key: copy.deepcopy(value)}
        if key in config:
            yield key, {name: entry for name, entry in config.items() if name != key}
    for key in config["rope_parameters"]:
        for value in further_values(key, config["rope_parameters"][key]):
            yield (
                f"rope_parameters.{key}",
                {**config, "rope_parameters": config["rope_parameters"] | {key: value}},
            )


def token_ids(vocab_size):
    return np.random.default_rng(0).integers(2, min(vocab_size, 40), LENGTH).astype(np.int32)


def expected_logprobs(directory):
    """Return transformers' log-probabilities of the completion; its weights are left in the directory."""
    config = transformers.AutoConfig.from_pretrained(directory, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, tensor in model.state_dict().items():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        values = random.normal(size=tuple(tensor.shape)) * 0.3 + ("norm" in name)
        tensor.copy_(torch.from_numpy(values.astype(np.float32)))
    model.tie_weights()
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    ids = token_ids(config.vocab_size)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None].long(), use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits.float(), -1)[PROMPT - 1 : -1]
    chosen = logprobs.gather(1, torch.from_numpy(ids[PROMPT:]).long()[:, None])[:, 0].numpy()
    return weights, chosen


def computed_logprobs(model, weights):
    """Return our log-probabilities of the completion."""
    network = CausalLM(model, positions=LENGTH)
    names = small.hf_names(model)
    network.load(fuse(model, {name: weights[part] for name, part in names.items()}))
    ids = token_ids(model.vocab_size)
    batch = Batch(ids[None, :PROMPT], np.array([PROMPT], np.int32), ids[None, None, PROMPT:])
    return network(*batch.tensors(), 1.0)[0].asnumpy().reshape(-1)


def accepted(directory):
    """Return the model section that plan makes of a directory; None if it refuses the directory."""
    overrides = (
        f"model.path={directory}", "sft.enabled=false", f"tokenize.max_prompt_length={PROMPT}",
        f"rollout.max_tokens={COMPLETION}", "layout=dp1_mp1_pp1",
    )  # fmt: skip
    try:
        model = load(overrides).model
        check_model(directory, model)
    except (ConfigError, InputError, StageError):
        return None
    return model


def write_weights(directory, weights):
    from safetensors.numpy import save_file

    save_file(
        {name: np.ascontiguousarray(array) for name, array in weights.items()},
        directory / "model.safetensors",
    )


@pytest.mark.parity
@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "base"),
    [(family, base) for family in FAMILIES for base in BASES if (family, base) != ("llama", "windowed")],
)
def test_a_changed_key_is_matched_or_refused(family, base, tmp_path, capsys):
    outcomes, wrong, largest, computed = Counter(), [], 0.0, {}
    reference = None
    for number, (key, config) in enumerate(
        [("", base_config(family, BASES[base])), *changed_configs(family, base)]
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(config))
        try:
            weights, expected = expected_logprobs(directory)
        except Exception:  # transformers refuses the file itself: there is nothing to compare
            outcomes["invalid"] += 1
            continue
        write_weights(directory, weights)
        if (model := accepted(directory)) is None:
            assert key, "the base must be accepted"
            outcomes["refused"] += 1
            continue
        model = replace(model, path=None)
        if model not in computed:  # the same section and the same random weights
            computed[model] = computed_logprobs(model, weights)
        difference = float(np.abs(computed[model] - expected).max())
        largest = max(largest, difference)
        reference = expected if reference is None else reference
        same = expected.shape == reference.shape and np.abs(expected - reference).max() < 1e-6
        outcomes["no effect" if same else "matched"] += 1
        if not difference < 1e-4:
            wrong.append((key, config.get(key), difference))
    with capsys.disabled():
        print(f"\n{family} {base}: {dict(outcomes)}, largest difference {largest:.1e}")
    assert wrong == []
    assert outcomes["matched"] >= 8 and outcomes["refused"] >= 20
