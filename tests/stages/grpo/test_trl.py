"""Loss and gradients beside those of TRL's GRPOTrainer on the same batch.

tests/data/trl/FAMILY.npz holds a batch and what TRL made of it. Made anew by
`python -m tests.stages.grpo.test_trl PYTHON`, PYTHON being an interpreter that can import TRL.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

from stages.grpo.batch import Batch
from stages.grpo.learner import Objective
from stages.grpo.loss import PolicyLoss, token_weights
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse, unfuse
from tests.stages.grpo import small
from tests.stages.grpo.small import train_config

PEER = Path(__file__).with_name("trl_peer.py")
GOLDEN = Path(__file__).parents[2] / "data" / "trl"
P, S, G, T, MAX_TOKENS, TEMPERATURE = 3, 5, 4, 6, 8, 0.9
CASES = {
    # trl_case says what has another name in TRL.
    "grpo": {"loss_type": "grpo", "beta": 0.1},
    "grpo_on_policy": {"loss_type": "grpo", "beta": 0.1, "num_iterations": 1},
    "grpo_without_kl": {"loss_type": "grpo", "beta": 0.0},
    "unbiased_kl": {"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": True},
    "unbiased_kl_on_policy": {"loss_type": "dapo", "beta": 0.1, "use_bias_correction_kl": True,
                              "num_iterations": 1},
    "dapo": {"loss_type": "dapo", "beta": 0.0, "epsilon_high": 0.28},
    "dapo_with_kl": {"loss_type": "dapo", "beta": 0.04, "epsilon_high": 0.28},
    "dr_grpo": {"loss_type": "dr_grpo", "beta": 0.1},
    "gspo": {"loss_type": "grpo", "beta": 0.0, "importance_sampling_level": "sequence", "epsilon_low": 0.02,
             "epsilon_high": 0.03},
    "gspo_on_policy": {"loss_type": "grpo", "beta": 0.1, "importance_sampling_level": "sequence",
                       "num_iterations": 1},
    "gspo_token_mean": {"loss_type": "dapo", "beta": 0.1, "importance_sampling_level": "sequence"},
    "cispo": {"loss_type": "cispo", "beta": 0.0, "epsilon_low": 1.0, "epsilon_high": 0.1},
    "cispo_on_policy": {"loss_type": "cispo", "beta": 0.1, "epsilon_low": 1.0, "num_iterations": 1},
    "sapo": {"loss_type": "sapo", "beta": 0.1},
    "sapo_sequence": {"loss_type": "sapo", "beta": 0.0, "importance_sampling_level": "sequence",
                      "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 3.0},
    "dual_clip": {"loss_type": "dapo", "beta": 0.0, "epsilon_low": 0.1, "epsilon_high": 0.1,
                  "clip_ratio_c": 1.2},
    "entropy": {"loss_type": "dapo", "beta": 0.1, "entropy_coeff": 0.2},
    "entropy_cispo_on_policy": {"loss_type": "cispo", "beta": 0.0, "epsilon_low": 1.0, "num_iterations": 1,
                                "entropy_coeff": 0.05},
}  # fmt: skip
DEFAULTS = {
    "num_iterations": 2, "epsilon_low": 0.2, "epsilon_high": 0.2, "importance_sampling_level": "token",
    "use_bias_correction_kl": False,
}  # fmt: skip


FAMILIES = {
    "qwen2": CASES,
    "qwen3": {name: CASES[name] for name in ("unbiased_kl", "gspo_on_policy", "entropy")},
}
"""What is stored of each; an installed TRL computes all cases."""


def model_config(family):
    changes = {"head_dim": 6} if family == "qwen3" else {}  # not hidden_size / heads
    return small.model_config(hidden_size=16, intermediate_size=24, vocab_size=48, family=family, **changes)


def make_batch(family, cases):
    """A batch with padding of both kinds, ratios beyond the bounds, and a completion that is masked out."""
    model, random = model_config(family), np.random.default_rng(5)
    weights = small.weights(model)
    prompt, length = small.prompts(model, P, S)
    completion = random.integers(2, model.vocab_size, (P, G, T)).astype(np.int32)
    tokens = random.integers(1, T + 1, (P, G))
    tokens[0, 0], tokens[1, 1] = T, 0
    network = CausalLM(model, S + T)
    network.load(fuse(model, weights))
    logprob = network(*Batch(prompt, length, completion).tensors(), TEMPERATURE)[0].asnumpy()
    noise = random.normal(size=(3, *logprob.shape))
    shape, names = config_of_transformers(model), small.hf_names(model)
    cases = {name: trl_case({**DEFAULTS, **case}) for name, case in cases.items()}
    settings = {"model": shape, "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, "cases": cases}
    return {
        **{f"weight/{names[name]}": array for name, array in weights.items()}, "prompt": prompt,
        "length": length, "completion": completion,
        "mask": (np.arange(T) < tokens[..., None]).astype(np.float32),
        "old": (logprob + 0.2 * noise[0]).astype(np.float32).reshape(P, G, T),
        "reference": (logprob + 0.3 * noise[1]).astype(np.float32).reshape(P, G, T),
        "advantage": (noise[2, :, 0] + 0.3).astype(np.float32), "settings": np.array(json.dumps(settings)),
    }  # fmt: skip


def config_of_transformers(model):
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps",
            "tie_word_embeddings")  # fmt: skip
    rope = {
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
    }
    return {**{key: getattr(model, key) for key in keys}, **rope, "pad_token_id": 0, "eos_token_id": 1,
            "bos_token_id": None, "model_type": model.family, "head_dim": model.head_size}  # fmt: skip


NAMES = {"epsilon_low": "epsilon", "clip_ratio_c": "delta", "entropy_coeff": "entropy_coef"}
"""Our name -> TRL's."""


def trl_case(case):
    off_policy = case["num_iterations"] > 1
    config = {NAMES.get(name, name): value for name, value in case.items()}
    if case["loss_type"] == "cispo":  # TRL's is the bound itself, and it has no lower one
        assert case["epsilon_low"] == 1.0
        config["epsilon_high"] += 1.0
    return {"config": config, "off_policy": off_policy}


def compute(family, batch, case):
    """Loss and gradients by Hugging Face names."""
    config, model = train_config(**{**DEFAULTS, **case}), model_config(family)
    network = CausalLM(model, S + T, entropy_gradient=config.entropy_coeff > 0)
    names = small.hf_names(model)
    named = {name: batch[f"weight/{stored}"] for name, stored in names.items()}
    network.load(fuse(model, named))
    flat = {key: batch[key].reshape(P * G, -1) for key in ("old", "reference", "advantage", "mask")}
    weight = token_weights(flat["mask"], config.loss_type, MAX_TOKENS)
    tokens = np.maximum(batch["mask"].sum(-1), 1).astype(np.int32)
    if config.loss_type == "dapo" and not config.entropy_coeff:  # all slots are computed, by another graph
        tokens = None
    arrays = Batch(batch["prompt"], batch["length"], batch["completion"], weight, flat["mask"],
                   flat["advantage"], flat["old"], flat["reference"], tokens)  # fmt: skip
    objective = Objective(network, PolicyLoss(config), TEMPERATURE)
    parameters = network.trainable_params()
    grad = ms.value_and_grad(objective, None, ms.ParameterTuple(parameters), has_aux=True)
    (loss, *_), gradients = grad(*arrays.tensors(*objective.loss_inputs))
    fused = {name: value.asnumpy() for name, value in zip(network.names, gradients, strict=True)}
    return float(loss.asnumpy()), {names[name]: array for name, array in unfuse(model, fused).items()}


def compare(family, batch, reference, name):
    loss, gradients = compute(family, batch, CASES[name])
    assert loss == pytest.approx(float(reference[f"{name}/loss"]), rel=1e-5)
    prefix = f"{name}/gradient/"
    expected = {key[len(prefix) :]: value for key, value in reference.items() if key.startswith(prefix)}
    assert gradients.keys() == expected.keys()
    complete = np.sqrt(sum(float((array.astype(np.float64) ** 2).sum()) for array in expected.values()))
    assert complete > 0.01  # there is something to compare
    for key, array in expected.items():
        # Of a gradient that is 0 but for rounding (key biases), no digit need agree.
        scale = max(float(np.abs(array).max()), 1e-3 * complete)
        assert np.abs(gradients[key] - array).max() <= 1e-5 * scale, key


@functools.cache
def golden(family):
    return dict(np.load(GOLDEN / f"{family}.npz"))


LONG = ("grpo", "grpo_without_kl", "unbiased_kl_on_policy", "dapo", "gspo_on_policy", "gspo_token_mean")
"""Cases whose options all occur in other cases, too."""
STORED = [(family, name) for family, cases in FAMILIES.items() for name in cases]


@pytest.mark.parametrize(
    ("family", "name"),
    [pytest.param(*case, marks=pytest.mark.long) if case[1] in LONG else case for case in STORED],
)
def test_equals_trls_stored_results(family, name):
    retained = golden(family)
    assert json.loads(str(retained["settings"]))["cases"][name] == json.loads(
        json.dumps(trl_case({**DEFAULTS, **CASES[name]}))
    )
    compare(family, retained, retained, name)


@pytest.fixture(scope="module", params=FAMILIES)
def live(request, tmp_path_factory):
    """A batch, and the results of an installed TRL: this interpreter's, or GRPOFLOW_TRL_PYTHON's."""
    python = os.environ.get("GRPOFLOW_TRL_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import trl, datasets"], capture_output=True, check=False).returncode:
        pytest.skip("no TRL; set GRPOFLOW_TRL_PYTHON to an interpreter that can import it")
    batch = make_batch(request.param, CASES)
    return request.param, batch, run_trl(python, batch, tmp_path_factory.mktemp("trl"))


def run_trl(python, batch, directory):
    np.savez(directory / "batch.npz", **batch)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, str(PEER), str(directory / "batch.npz"), str(directory / "result.npz")]
    subprocess.run(command, check=True, env=environment)
    return dict(np.load(directory / "result.npz"))


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_equals_an_installed_trl(live, name):
    compare(*live, name)


if __name__ == "__main__":
    import tempfile

    for family, cases in FAMILIES.items():
        made, file = make_batch(family, cases), GOLDEN / f"{family}.npz"
        with tempfile.TemporaryDirectory() as scratch:
            answer = run_trl(sys.argv[1], made, Path(scratch))
        np.savez_compressed(file, **made, **answer)
        print(f"{file}: {answer['made_by']}")
