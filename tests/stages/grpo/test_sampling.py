import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from stages.grpo.sampling import NextToken, penalised, uniforms
from tests.stages.grpo import small
from tests.stages.grpo.test_model import transformers_twin


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
