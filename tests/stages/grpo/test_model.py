import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

from stages.fetch.builtin import write_config
from stages.grpo.batch import Batch
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from stages.grpo.sampling import uniforms
from stages.models.families import family_of
from stages.tokenizer import SpecialIds
from tests.stages.grpo import small

LLAMA3_SCALING = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8
}  # fmt: skip
ODD = {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 36}
SHAPES = {
    "qwen2": {"num_attention_heads": 8},
    "qwen2_untied": {"num_attention_heads": 8, "tie_word_embeddings": False},
    "qwen3_six_heads": {"family": "qwen3", "head_dim": 10, "tie_word_embeddings": False, **ODD},
    "llama3_scaled": {"family": "llama3", "head_dim": 16, "rope_scaling": LLAMA3_SCALING, **ODD},
}
"""Odd ones: heads that are not hidden_size / heads, six with two for keys, tied and not, positions beyond the
original length (8 of up to 16)."""


def transformers_twin(model, weights):
    """The same model of transformers, told by the config.json that fetch writes of a built-in one."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with tempfile.TemporaryDirectory() as directory:
        write_config(model, {"bos": None, "eos": [1], "pad": 0}, Path(directory))
        config = transformers.AutoConfig.from_pretrained(directory, attn_implementation="eager")
    twin = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    assert type(twin).__name__ == family_of(model).architecture
    names = small.hf_names(model)
    state = {names[name]: torch.from_numpy(array) for name, array in weights.items()}
    missing, unexpected = twin.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    return twin, torch


@pytest.mark.parity
@pytest.mark.parametrize("shape", SHAPES)
def test_logprobs_equal_transformers(shape, capsys):
    model, P, S, G, T = small.model_config(**SHAPES[shape]), 8, 9, 3, 7
    weights = small.weights(model)
    actual = CausalLM(model, positions=S + T)
    actual.load(fuse(model, weights))
    twin, torch = transformers_twin(model, weights)
    prompt, length = small.prompts(model, P, S)
    random = np.random.default_rng(1)
    completion = random.integers(2, model.vocab_size, (P, G, T)).astype(np.int32)
    tokens = random.integers(1, T + 1, (P, G), dtype=np.int32)
    if shape == "qwen2":  # every slot holds a token, which another graph computes
        length[:], tokens[:] = S, T
    batch = Batch(prompt, length, completion, tokens_PG=tokens)
    got, entropy = (values.asnumpy().reshape(P, G, T) for values in actual(*batch.tensors(), 0.7))
    largest = 0.0
    for p, g in np.ndindex(P, G):
        valid = slice(tokens[p, g])
        ids = torch.tensor(np.concatenate([prompt[p, : length[p]], completion[p, g, valid]]))[None].long()
        with torch.no_grad():
            expected = torch.log_softmax(twin(ids).logits[0, length[p] - 1 : -1] / 0.7, -1)
        chosen = expected.gather(1, torch.tensor(completion[p, g, valid]).long()[:, None])[:, 0].numpy()
        largest = max(largest, float(np.abs(got[p, g, valid] - chosen).max()))
        by_hand = -(expected.exp() * expected).sum(-1).numpy()
        np.testing.assert_allclose(entropy[p, g, valid], by_hand, atol=1e-4)
    with capsys.disabled():
        print(f"\nlargest difference of log-probabilities to transformers ({shape}): {largest:.2e}")
    assert largest < 1e-4


def test_cached_decoding_equals_the_full_forward():
    """Each token is the one that the training forward's distribution gives at the number drawn for it."""
    model, P, S, G, T = small.model_config(), 3, 6, 4, 10
    actual = CausalLM(model, positions=S + T)
    actual.load(fuse(model, small.weights(model)))
    prompt, length = small.prompts(model, P, S)
    draws = uniforms((3,), P * G, T)
    decoder = Decoder(actual, small.rollout_config(), P, G, S, SpecialIds(None, (1,), 0))
    done = decoder.generate(prompt, length, draws)
    logits = every_logit(actual, prompt, length, done.ids.reshape(P, G, T)).astype(np.float64)
    cumulative = np.cumsum(np.exp(logits - logits.max(-1, keepdims=True)), -1)
    cumulative /= cumulative[..., -1:]
    checked = 0
    for row, t in zip(*np.nonzero(np.arange(T) < done.lengths[:, None]), strict=True):
        if np.abs(cumulative[row, t] - draws[row, t]).min() > 1e-5:  # else rounding may decide
            assert done.ids[row, t] == np.searchsorted(cumulative[row, t], draws[row, t])
            checked += 1
    assert checked > 0.9 * done.lengths.sum()
    assert (done.ids[np.arange(T) >= done.lengths[:, None]] == 0).all()


def every_logit(network, prompt, length, completion):
    """Logits [P*G, T, V] that predict each token of completion [P, G, T], computed slot by slot."""
    P, G, T = completion.shape
    S = prompt.shape[1]

    @ms.jit
    def forward(*inputs):
        return network.all_logits(*network.hidden(*inputs))

    logits = forward(*Batch(prompt, length, completion).tensors()[:6]).asnumpy()
    first = logits[: P * S].reshape(P, S, -1)[np.arange(P), length - 1]
    remaining = logits[P * S :].reshape(P * G, T - 1, -1)
    return np.concatenate([np.repeat(first, G, 0)[:, None], remaining], 1)
