import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo.sampling import NextToken, lengths, penalised, uniforms
from tests.stages.grpo import small

LOGITS = np.log(np.array([0.05, 0.4, 0.1, 0.3, 0.15], np.float32))


def draw(uniform, greedy=False, t=5, logits=LOGITS, **rules):
    uniform = np.atleast_1d(np.array(uniform, np.float32))
    rows = np.tile(logits, (len(uniform), 1)).astype(np.float32)
    sampler = NextToken(small.rollout_config(**rules), (1,), len(logits))
    ids = sampler(Tensor(rows), Tensor(uniform), greedy, Tensor(t, ms.int32))
    return ids.asnumpy()


def frequencies(**rules):
    """Shares of the five tokens over 1,000 evenly spread numbers: the distribution itself."""
    return np.bincount(draw((np.arange(1000) + 0.5) / 1000, **rules), minlength=5) / 1000


def test_plain_sampling_follows_the_distribution():
    np.testing.assert_allclose(frequencies(), np.exp(LOGITS), atol=0.002)


def test_temperature_sharpens():
    wanted = np.exp(LOGITS / 0.5) / np.exp(LOGITS / 0.5).sum()
    np.testing.assert_allclose(frequencies(temperature=0.5), wanted, atol=0.002)


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 5}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.6}, [1, 3]),
        ({"top_p": 0.75}, [1, 3, 4]),
        ({"top_p": 0.01}, [1]),
        ({"min_p": 0.3}, [1, 3, 4]),
        ({"top_k": 3, "top_p": 0.4}, [1]),
    ],
)
def test_filters_keep_the_likeliest_and_renormalise(rules, kept):
    wanted = np.zeros(5)
    wanted[kept] = np.exp(LOGITS[kept]) / np.exp(LOGITS[kept]).sum()
    np.testing.assert_allclose(frequencies(**rules), wanted, atol=0.002)


def test_greedy_ignores_the_number_and_the_filters():
    assert (draw([0.0, 0.5, 0.999], greedy=True, top_p=0.9) == 1).all()


def test_the_ends_of_the_interval_draw_possible_tokens():
    impossible_ends = np.array([-1e9, 0.0, 0.0, -1e9], np.float32)
    largest = uniforms((0,), 1, 1).dtype.type(1 - 2**-22)
    assert draw([0.0, largest], logits=impossible_ends).tolist() == [1, 2]


def test_no_end_before_min_tokens():
    assert 1 not in draw(np.linspace(0, 0.99, 50), t=1, min_tokens=2)
    assert 1 in draw(np.linspace(0, 0.99, 50), t=2, min_tokens=2)


@pytest.mark.parametrize("vocab", [1, 7, 12, 512, 2048])
def test_blocks_draw_as_one_running_sum_does(vocab):
    random = np.random.default_rng(vocab)
    logits = (3 * random.normal(size=(50, vocab))).astype(np.float32)
    logits[:, ::3] = np.where(random.random((50, 1)) < 0.5, -1e9, logits[:, ::3]) if vocab > 3 else 0
    uniform = random.random(50).astype(np.float32)
    sampler = NextToken(small.rollout_config(), (0,), vocab)
    found = sampler(Tensor(logits), Tensor(uniform), False, Tensor(0, ms.int32)).asnumpy()
    weights = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    cumulative = np.cumsum(weights, 1) / weights.sum(1, keepdims=True)
    for row, token in enumerate(found):
        assert weights[row, token] > 0
        if np.abs(cumulative[row] - uniform[row]).min() > 1e-5:  # else rounding may decide
            assert token == np.searchsorted(cumulative[row], uniform[row], side="right")


def test_no_weightless_token_is_drawn_at_the_edges_of_blocks():
    """Only the last token of one block and the first of the next can be drawn, at any number."""
    logits = np.full((1, 16), -1e9, np.float32)
    logits[0, [3, 4]] = 0.1
    numbers = np.concatenate(
        [np.linspace(0, 1 - 2**-22, 999), [0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1)]]
    )
    assert set(draw(numbers, logits=logits[0])) == {3, 4}


def test_a_repeated_token_becomes_less_likely():
    logits, seen = Tensor([[2.0, -2.0, 1.0, -1.0]], ms.float32), Tensor([[1, 1, 0, 0]], ms.float32)
    np.testing.assert_allclose(penalised(logits, seen, 2.0).asnumpy(), [[1.0, -4.0, 1.0, -1.0]])


def test_sampled_tokens_follow_the_exact_probabilities():
    """Chi-square over 20,000 draws from 12 tokens: 24.7 is exceeded once in a hundred times."""
    random = np.random.default_rng(1)
    logits = random.normal(size=12).astype(np.float32)
    drawn = draw(uniforms((4,), 20_000, 1)[:, 0], logits=logits, temperature=0.7)
    wanted = np.exp(logits / 0.7) / np.exp(logits / 0.7).sum() * 20_000
    assert (((np.bincount(drawn, minlength=12) - wanted) ** 2) / wanted).sum() < 24.7


def test_uniforms_depend_on_seed_and_place_only():
    every = uniforms((1, 2), 6, 4)
    assert every.dtype == np.float32 and every.min() >= 0 and every.max() < 1
    np.testing.assert_array_equal(every, uniforms((1, 2), 6, 4))
    assert not np.array_equal(every, uniforms((1, 3), 6, 4))


def test_lengths():
    ids = np.array([[5, 1, 0, 0], [5, 6, 7, 8], [1, 0, 0, 0], [5, 6, 7, 1]])
    found, cut = lengths(ids, (1,))
    assert found.tolist() == [2, 4, 1, 4] and cut.tolist() == [False, True, False, False]
