import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.fetch.builtin import write_config
from stages.grpo.batch import Batch
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from stages.grpo.sampling import NextToken, penalised, uniforms
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


def test_graphs_that_have_run_compute_with_weights_that_are_loaded_later():
    model, P, S, G, T = small.model_config(), 3, 6, 4, 10
    prompt, length = small.prompts(model, P, S)
    draws = uniforms((3,), P * G, T)
    rules = small.rollout_config(repetition_penalty=1.3)  # reads a parameter that the graph writes, too

    def completions(decoder):
        return decoder.generate(prompt, length, draws).ids

    def decoder():
        return Decoder(CausalLM(model, positions=S + T), rules, P, G, S, SpecialIds(None, (1,), 0))

    weights = [
        fuse(model, {name: scale * array for name, array in small.weights(model).items()}) for scale in (1, 3)
    ]
    fresh, reused, results = decoder(), decoder(), []
    for values in (*weights, weights[0]):
        reused.model.load(values)
        results.append(completions(reused))
    fresh.model.load(weights[1])
    np.testing.assert_array_equal(completions(fresh), results[1])
    np.testing.assert_array_equal(results[2], results[0])
    assert (results[1] != results[0]).any()


def every_logit(network, prompt, length, completion):
    """Logits [P*G, T, V] that predict each token of completion [P, G, T], computed slot by slot."""
    P, G, T = completion.shape
    S = prompt.shape[1]

    @ms.jit
    def forward(*inputs):
        return network.all_logits(*network.hidden(*inputs))

    logits = forward(*Batch(prompt, length, completion).tensors()[:7]).asnumpy()
    first = logits[: P * S].reshape(P, S, -1)[np.arange(P), length - 1]
    remaining = logits[P * S :].reshape(P * G, T - 1, -1)
    return np.concatenate([np.repeat(first, G, 0)[:, None], remaining], 1)


@pytest.mark.parametrize("vocab", [1, 7, 12, 512, 2048])
def test_sampling_in_blocks_equals_a_single_cumulative_sum(vocab):
    random = np.random.default_rng(vocab)
    logits = (3 * random.normal(size=(50, vocab))).astype(np.float32)
    logits[:, ::3] = np.where(random.random((50, 1)) < 0.5, -1e9, logits[:, ::3]) if vocab > 3 else 0
    uniform = random.random(50).astype(np.float32)
    sampler = NextToken(small.rollout_config(), (0,), vocab)
    actual = sampler(Tensor(logits), Tensor(uniform), False, Tensor(0, ms.int32)).asnumpy()
    weights = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    cumulative = np.cumsum(weights, 1) / weights.sum(1, keepdims=True)
    for row, token in enumerate(actual):
        assert weights[row, token] > 0
        if np.abs(cumulative[row] - uniform[row]).min() > 1e-5:  # else rounding may decide
            assert token == np.searchsorted(cumulative[row], uniform[row], side="right")


@pytest.mark.parity
@pytest.mark.parametrize(
    "rules",
    [
        {"top_p": 0.8},
        {"repetition_penalty": 0.8},
        {"repetition_penalty": 1.3, "temperature": 1.4, "top_k": 30, "top_p": 0.9, "min_p": 0.05},
    ],
)
def test_rules_give_the_distribution_that_transformers_samples_from(rules):
    """All draws that evenly spread numbers decide, beside the scores of transformers' own processors."""
    model, numbers = small.model_config(), 4000
    twin, torch = transformers_twin(model, small.weights(model))
    prompt, length = small.prompts(model, 6, 9)
    remaining = {key: value for key, value in rules.items() if key != "repetition_penalty"}
    sampler = NextToken(small.rollout_config(**remaining), (1,), model.vocab_size)
    for ids, count in zip(prompt, length, strict=True):
        ids = torch.tensor(ids[:count])[None].long()
        answer = twin.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=1, output_scores=True,
            output_logits=True, return_dict_in_generate=True, **{"top_k": 0, **rules},
        )  # fmt: skip
        expected = torch.softmax(answer.scores[0][0].double(), -1).numpy()
        seen = np.zeros((1, model.vocab_size), np.float32)
        seen[0, ids[0].numpy()] = 1
        logits = Tensor(answer.logits[0].numpy())
        logits = penalised(logits, Tensor(seen), rules.get("repetition_penalty", 1.0)).asnumpy()[0]
        rows, uniform = np.tile(logits, (numbers, 1)), (np.arange(numbers, dtype=np.float32) + 0.5) / numbers
        drawn = sampler(Tensor(rows), Tensor(uniform), False, Tensor(5, ms.int32)).asnumpy()
        actual = np.bincount(drawn, minlength=model.vocab_size) / numbers
        np.testing.assert_allclose(actual, expected, atol=1.5 / numbers)
        assert (actual[expected == 0] == 0).all()


def test_uniforms_depend_on_seed_and_position_only():
    every = uniforms((1, 2), 6, 4)
    assert every.dtype == np.float32 and every.min() >= 0 and every.max() < 1
    np.testing.assert_array_equal(every, uniforms((1, 2), 6, 4))
    assert not np.array_equal(every, uniforms((1, 3), 6, 4))
    shares = np.histogram(uniforms((4,), 20_000, 1), bins=12, range=(0, 1))[0] / 20_000
    assert np.abs(shares - 1 / 12).max() < 0.01
