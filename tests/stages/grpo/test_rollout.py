"""Decoding with few rows and slots, beside decoding of all rows in whole caches to the end."""

import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo import rollout
from stages.grpo.config import smaller_batches
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from stages.grpo.sampling import LARGEST
from stages.tokenizer import SpecialIds
from tests.stages.grpo import small

P, S, G, T, V = 16, 6, 8, 28, 96
B, PAD = P * G, 5
TWO_ENDS = SpecialIds(None, (0, V - 1), PAD)
MANY_ENDS = SpecialIds(None, tuple(range(1, 13)), PAD)
SHAPES = {
    "qwen2": {},
    "qwen2_untied": {"tie_word_embeddings": False},
    "qwen3": {"family": "qwen3", "head_dim": 10},
    "qwen3_untied": {"family": "qwen3", "tie_word_embeddings": False},
}
LENGTHS = {
    "all end at once": [9] * B,
    "one stays to the end": [5] * 70 + [T] + [6] * (B - 71),
    "fewer and fewer": [T - 1 if row % 9 == 0 else 3 + row % 20 for row in range(B)],
    "the last rows stay": [4] * (B - 16) + [20] * 15 + [T],
    "none ends": [T] * B,
}
USED = {
    "all end at once": set(),
    "one stays to the end": {16},
    "fewer and fewer": {64, 32, 16},
    "the last rows stay": {16},
    "none ends": set(),
}


def make(shape, special, initializer_range=0.1, **rules):
    """A decoder; with weights of 0.1 no token is likely."""
    model = small.model_config(
        num_hidden_layers=2, vocab_size=V, initializer_range=initializer_range, **SHAPES[shape]
    )
    network = CausalLM(model, positions=S + T)
    network.load(fuse(model, small.weights(model)))
    decoder = Decoder(network, small.rollout_config(max_tokens=T, **rules), P, G, S, special)
    return decoder, small.prompts(model, P, S)


def numbers(lengths):
    """Draws [B, T] whose first or last token, in turn an end, comes where a completion is to end."""
    random = np.random.default_rng(0)
    draws = random.uniform(0.3, 0.7, (B, T)).astype(np.float32)
    for row, length in enumerate(lengths):
        if length < T:
            draws[row, length - 1] = LARGEST if row % 2 else 0
    return draws


def both(decoder, prompts, draws, monkeypatch):
    """Completions with all rows to the end and with as few as possible; the numbers of rows of the latter."""
    sizes = set[int]()
    monkeypatch.setattr(rollout, "COMPILATION", float("inf"))
    whole = decoder.generate(*prompts, draws)
    monkeypatch.setattr(rollout, "COMPILATION", 0)
    of_size = decoder._of
    monkeypatch.setattr(decoder, "_of", lambda size, slots: sizes.add(size) or of_size(size, slots))
    fewer = decoder.generate(*prompts, draws)
    monkeypatch.setattr(decoder, "_of", of_size)
    return whole, fewer, sizes


def assert_same(fewer, whole):
    np.testing.assert_array_equal(fewer.ids, whole.ids)
    np.testing.assert_array_equal(fewer.lengths, whole.lengths)
    np.testing.assert_array_equal(fewer.cut, whole.cut)


@pytest.mark.parametrize(
    "shape",
    [
        "qwen2",
        "qwen3_untied",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("qwen2_untied", "qwen3")),
    ],
)
def test_sampled_completions_do_not_depend_on_rows_that_have_ended(shape, monkeypatch):
    decoder, prompts = make(shape, TWO_ENDS)
    for case, lengths in LENGTHS.items():
        whole, fewer, sizes = both(decoder, prompts, numbers(lengths), monkeypatch)
        np.testing.assert_array_equal(whole.lengths, lengths, err_msg=case)
        assert_same(fewer, whole)
        assert sizes == USED[case], case
        ended = np.array(lengths) < T
        assert set(whole.ids[ended, whole.lengths[ended] - 1]) <= {0, V - 1}
        assert (whole.ids[np.arange(T) >= whole.lengths[:, None]] == PAD).all()
    assert len(np.unique(whole.ids)) > 20


@pytest.mark.parametrize(("shape", "penalty"), [("qwen2", 1.3), ("qwen3_untied", 1.0)])
def test_greedy_completions_do_not_depend_on_rows_that_have_ended(shape, penalty, monkeypatch):
    """With a penalty, what a completion has seen moves with it."""
    decoder, _ = make(shape, MANY_ENDS, 0.3, repetition_penalty=penalty)
    decoder = Decoder(decoder.model, decoder.config, B, 1, S, MANY_ENDS)
    prompts = small.prompts(small.model_config(vocab_size=V), B, S)
    whole, fewer, sizes = both(decoder, prompts, None, monkeypatch)
    assert_same(fewer, whole)
    assert sizes and len(np.unique(whole.lengths)) > 8


def test_caches_move_with_their_completions():
    """Keys of both layers after a step on 16 of 128 rows equal those of a step on all rows."""
    decoder, prompts = make("qwen3", TWO_ENDS)
    ids, length = prompts
    random = np.random.default_rng(3)
    uniform = random.uniform(0.3, 0.7, (2, B)).astype(np.float32)
    token, done = decoder.prefill(Tensor(ids), Tensor(length), Tensor(uniform[0]), False)
    rows = np.sort(random.choice(B, 16, replace=False))
    few = decoder._of(16, T)
    few.take_over(decoder.all, rows)
    lengths, position = length.repeat(G), Tensor(np.array([1], np.int32))
    drawn, _ = decoder.all.step(token, done, Tensor(lengths), position, Tensor(uniform[1]), False)
    kept = [Tensor(array[rows]) for array in (token.asnumpy(), done.asnumpy(), lengths)]
    drawn_few, _ = few.step(*kept, position, Tensor(uniform[1, rows]), False)
    np.testing.assert_array_equal(drawn_few.asnumpy(), drawn.asnumpy()[rows])
    caches = [(*decoding.keys, *decoding.values) for decoding in (few, decoder.all)]
    for actual, expected in zip(*caches, strict=True):
        by_row = expected.asnumpy().reshape(B, decoder.K, S + T, -1)[rows]
        actual = actual.asnumpy().reshape(by_row.shape)
        np.testing.assert_allclose(actual, by_row, rtol=0, atol=1e-6)
        assert (actual[:, :, S] != 0).any() and (actual[:, :, S + 1 :] == 0).all()


@pytest.mark.parametrize("shape", ["qwen2", pytest.param("qwen3", marks=pytest.mark.long)])
def test_completions_do_not_depend_on_caches_for_the_first_tokens(shape, monkeypatch):
    whole, prompts = make(shape, TWO_ENDS, repetition_penalty=1.1)
    monkeypatch.setattr(rollout, "COMPILATION", 0)
    early, _ = make(shape, TWO_ENDS, repetition_penalty=1.1)
    assert (whole.all.T, early.all.T) == (T, T // 4)
    monkeypatch.setattr(rollout, "COMPILATION", float("inf"))
    for draws in (*map(numbers, LENGTHS.values()), None):  # each leaves something in the caches
        assert_same(early.generate(*prompts, draws), whole.generate(*prompts, draws))
    assert set(early.others) == {(B, T)} and not whole.others
    monkeypatch.setattr(rollout, "COMPILATION", 0)
    draws = numbers(LENGTHS["the last rows stay"])
    assert_same(early.generate(*prompts, draws), whole.generate(*prompts, draws))
    assert set(early.others) == {(B, T), (16, T // 4), (16, T)}


def test_a_graph_of_fewer_rows_must_save_more_than_its_compilation(monkeypatch):
    monkeypatch.setattr(Decoder, "_of", lambda self, *shape: shape)
    decoder, _ = make("qwen2", TWO_ENDS)
    assert smaller_batches(B) == [64, 32, 16] and smaller_batches(100) == [50, 25] and not smaller_batches(30)
    monkeypatch.setattr(rollout, "COMPILATION", 0)
    chosen = [decoder.fitting(decoder.all, running, 1) for running in (128, 65, 64, 33, 32, 17, 16, 1)]
    assert chosen == [decoder.all, decoder.all, *((size, T) for size in (64, 64, 32, 32, 16, 16))]
    # two layers of 32 hidden, 48 intermediate: 2 x (64 x 32 + 32 x 32 + 3 x 32 x 48) + 24 x 16 x 34 slots
    assert decoder.operations(T) == 28_416
    monkeypatch.setattr(rollout, "COMPILATION", 28_416 * 64 * 10 / 2)
    assert [decoder.fitting(decoder.all, 64, T - left) for left in (9, 10)] == [decoder.all, (64, T)]
    decoder.calls = 2
    assert [decoder.fitting(decoder.all, 64, T - left) for left in (4, 5)] == [decoder.all, (64, T)]


def test_caches_for_the_first_tokens_must_save_more_than_a_compilation(monkeypatch):
    saved = 24 * 16 * (T - T // 4) * (T // 4) * B  # slots that no completion reads, if none ends before
    for compilation, slots in ((saved, T // 4), (saved + 1, T)):
        monkeypatch.setattr(rollout, "COMPILATION", compilation)
        decoder, _ = make("qwen2", TWO_ENDS)
        assert slots == decoder.all.T
    monkeypatch.setattr(rollout, "COMPILATION", saved)
    monkeypatch.setattr(Decoder, "_of", lambda self, *shape: shape)
    decoder, _ = make("qwen2", TWO_ENDS)
    monkeypatch.setattr(rollout, "COMPILATION", float("inf"))
    assert [decoder.fitting(decoder.all, 1, t) for t in (7, 8)] == [decoder.all, (B, T)]
    monkeypatch.setattr(rollout, "COMPILATION", 0)
    assert [decoder.fitting(decoder.all, 40, t) for t in (6, 8)] == [(64, 7), (64, T)]
