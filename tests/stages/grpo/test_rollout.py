"""Decoding that leaves out completions that have ended, beside decoding of all rows to the end."""

from types import SimpleNamespace

import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo import rollout
from stages.grpo.config import smaller_batches
from stages.grpo.decoding import RELEASED, _hold
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
    monkeypatch.setattr(decoder, "_of", lambda rows, slots: sizes.add(rows) or of_size(rows, slots))
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
    """Caches after a step on 16 of 128 rows, with more slots, equal those of a step on all rows."""
    decoder, prompts = make("qwen3", TWO_ENDS)
    ids, length = prompts
    random = np.random.default_rng(3)
    uniform = random.uniform(0.3, 0.7, (2, B)).astype(np.float32)
    decoder.all.allocate()
    token, done = decoder.prefill(Tensor(ids), Tensor(length), Tensor(uniform[0]), False)
    rows = np.sort(random.choice(B, 16, replace=False))
    few, before = decoder._of(16, T + 8), [array.copy() for array in caches(decoder.all)]
    few.take_over(decoder.all, rows)
    assert {array.shape for array in caches(decoder.all)} == {RELEASED}
    for cache, array in zip((*decoder.all.keys, *decoder.all.values), before, strict=True):
        _hold(cache, array)
    lengths, position = length.repeat(G), Tensor(np.array([1], np.int32))
    drawn, _ = decoder.all.step(token, done, Tensor(lengths), position, Tensor(uniform[1]), False)
    kept = [Tensor(array[rows]) for array in (token.asnumpy(), done.asnumpy(), lengths)]
    drawn_few, _ = few.step(*kept, position, Tensor(uniform[1, rows]), False)
    np.testing.assert_array_equal(drawn_few.asnumpy(), drawn.asnumpy()[rows])
    for actual, expected in zip(caches(few), caches(decoder.all), strict=True):
        by_row = expected.reshape(B, decoder.K, S + T, -1)[rows]
        actual = actual.reshape(16, decoder.K, S + T + 8, -1)
        np.testing.assert_allclose(actual[:, :, : S + T], by_row, rtol=0, atol=1e-6)
        assert (actual[:, :, S] != 0).any() and (actual[:, :, S + 1 :] == 0).all()


def caches(decoding):
    """Arrays of all caches of a decoding."""
    return [cache.asnumpy() for cache in (*decoding.keys, *decoding.values)]


@pytest.mark.parametrize(
    ("shape", "penalty"), [("qwen2", 1.3), pytest.param("qwen3_untied", 1.0, marks=pytest.mark.long)]
)
def test_completions_do_not_depend_on_how_caches_grow(shape, penalty, monkeypatch):
    """Drawn ones, twice, and greedy ones: caches take no memory in between."""
    done, prompts = {}, small.prompts(small.model_config(vocab_size=V), 4, S)
    draws = np.random.default_rng(5).uniform(0.01, 0.99, (4 * G, T)).astype(np.float32)
    made, _ = make(shape, MANY_ENDS, 0.3, repetition_penalty=penalty)
    for grows in (False, True):
        monkeypatch.setattr(rollout, "COMPILATION", 0 if grows else float("inf"))
        monkeypatch.setattr(rollout, "FEWEST_SLOTS", 4)
        decoder = Decoder(made.model, made.config, 4, G, S, MANY_ENDS)
        assert decoder.slots == ([8, 16, 24, T] if grows else [T])
        done[grows] = [decoder.generate(*prompts, given) for given in (draws, draws, None)]
        used = [decoder.all, *decoder.others.values()]
        assert len({decoding.T for decoding in used}) == len(decoder.slots)
        assert {array.shape for decoding in used for array in caches(decoding)} == {RELEASED}
    for fewer, whole in zip(done[True], done[False], strict=True):
        assert_same(fewer, whole)
        assert len(np.unique(whole.lengths)) > 3
    assert_same(*done[True][:2])


def test_caches_grow_if_that_saves_more_than_the_graphs_take(monkeypatch):
    """By hand for 64 completions with 4 heads of 32: attention takes 4 x 128 operations for a slot."""

    def slots(tokens, calls):
        return Decoder._slots(SimpleNamespace(T=tokens, B=64, per_slot=512, calls=calls))

    # two graphs spare 0.75 x 0.5 / 2 of 64 x 512 x 512 x 512 x 4 operations, four (2.625 + 1.25 + 0.375) / 16
    assert slots(512, 3) == [512]  # 1.9e10 of 2e10
    assert slots(512, 4) == [256, 512]  # 2.6e10 of 2e10, 3.7e10 of 6e10
    assert slots(512, 7) == [128, 256, 384, 512]  # 6.4e10 of 6e10
    monkeypatch.setattr(rollout, "COMPILATION", 0)
    assert slots(30, 1) == [16, 30] and slots(24, 1) == [24]


def test_a_graph_of_fewer_rows_must_save_more_than_its_compilation(monkeypatch):
    monkeypatch.setattr(Decoder, "_of", lambda self, rows, slots: rows)
    decoder, _ = make("qwen2", TWO_ENDS)
    assert smaller_batches(B) == [64, 32, 16] and smaller_batches(100) == [50, 25] and not smaller_batches(30)
    monkeypatch.setattr(rollout, "COMPILATION", 0)
    sizes = [decoder.fitting(decoder.all, running, 0) for running in (128, 65, 64, 33, 32, 17, 16, 1)]
    assert sizes == [decoder.all, decoder.all, 64, 64, 32, 32, 16, 16]
    # two layers of 32 hidden, 48 intermediate: 2 x (64 x 32 + 32 x 32 + 3 x 32 x 48) + 4 x 32 x 34 slots
    assert decoder.operations == 19_712
    monkeypatch.setattr(rollout, "COMPILATION", 19_712 * 64 * 10 / 2)
    assert [decoder.fitting(decoder.all, 64, T - left) for left in (9, 10)] == [decoder.all, 64]
    decoder.calls = 2
    assert [decoder.fitting(decoder.all, 64, T - left) for left in (4, 5)] == [decoder.all, 64]
