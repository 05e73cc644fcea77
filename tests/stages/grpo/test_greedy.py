"""Greedy decoding beside transformers' generate, token by token; checks decode by the rules of evaluate."""

from dataclasses import replace

import numpy as np
import pytest

from stages.grpo.collectives import Gather
from stages.grpo.data import Prompts
from stages.grpo.evaluate import complete
from stages.grpo.generator import GreedyAccuracy
from stages.grpo.model import CausalLM
from stages.grpo.parallel import SINGLE
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from stages.grpo.sampling import uniforms
from stages.tokenizer import SpecialIds
from tests.stages.grpo import small
from tests.stages.grpo.test_model import SHAPES, transformers_twin

P, S, T = 32, 12, 24
ENDS = (1, 7, 30, 55)


@pytest.mark.parity
@pytest.mark.parametrize(
    ("shape", "min_tokens", "penalty"),
    [("qwen2_untied", 6, 1.4), ("qwen3_six_heads", 0, 1.0), ("llama3_scaled", 0, 1.0)],
)
def test_greedy_decoding_equals_transformers_generate(shape, min_tokens, penalty):
    """32 prompts of 1 to 12 tokens, four stop ids, with and without a least length and a penalty."""
    model = small.model_config(**SHAPES[shape], num_hidden_layers=2, vocab_size=160)
    weights = small.weights(model)
    network = CausalLM(model, positions=S + T)
    network.load(fuse(model, weights))
    prompt, length = small.prompts(model, P, S)
    rules = small.rollout_config(max_tokens=T, min_tokens=min_tokens, repetition_penalty=penalty)
    done = Decoder(network, rules, P, 1, S, Numbers.special).generate(prompt, length, None)

    twin, torch = transformers_twin(model, weights)
    actual = []
    for p in range(P):
        ids = torch.tensor(prompt[p, : length[p]])[None].long()
        answer = twin.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=T,
            min_new_tokens=min_tokens or None, repetition_penalty=penalty, eos_token_id=list(ENDS),
        )  # fmt: skip
        expected = answer[0, length[p] :].numpy()
        np.testing.assert_array_equal(done.ids[p, : done.lengths[p]], expected, err_msg=f"prompt {p}")
        assert (done.ids[p, done.lengths[p] :] == 0).all()
        actual.append(expected)
    # The case says something: many tokens, several ends, some completions that are cut.
    assert len(np.unique(np.concatenate(actual))) > 40
    assert len({row[-1] for row in actual if row[-1] in ENDS}) > 1 and 0 < done.cut.sum() < P
    assert min(len(row) for row in actual) >= max(min_tokens, 1)


class Numbers:
    """A vocabulary whose texts are the ids."""

    special = SpecialIds(None, ENDS, 0)

    def texts(self, ids, lengths):
        return [" ".join(map(str, row[:length])) for row, length in zip(ids, lengths, strict=True)]


def test_validation_gives_the_same_answers_as_evaluate():
    """Every second solution is the last number of what evaluate's functions decode."""
    model = small.model_config(num_hidden_layers=1)
    network = CausalLM(model, positions=S + T)
    network.load(fuse(model, small.weights(model)))
    ids, lengths = small.prompts(model, 16, S)
    rules = small.rollout_config(max_tokens=T, min_tokens=9, repetition_penalty=1.2)
    prompts = Prompts(ids, lengths, ("",) * 16, ("",) * 16)
    decoder = Decoder(network, rules, 16, 1, S, Numbers.special)
    texts, tokens = complete(decoder, prompts, Numbers(), None, lengths)
    assert len(set(texts)) > 8 and min(tokens) >= 9
    prompts = replace(
        prompts, solutions=tuple([text.split()[-1], "-1"][i % 2] for i, text in enumerate(texts))
    )
    assert GreedyAccuracy(network, SINGLE, prompts, rules, Numbers(), Gather(None))() == 0.5
    assert GreedyAccuracy(network, SINGLE, prompts, rules, Numbers(), OtherCount())() == 4 / 16


class OtherCount:
    """Two workers; worker 0 judged four answers as right."""

    size = 2

    def arrays(self, array):
        of_worker_0 = np.frombuffer(b'{"value": 4}', np.int32)
        first = [len(of_worker_0.tobytes())] if array.shape == (1,) else of_worker_0
        return np.stack([first if len(first) == len(array) else array, array])


@pytest.mark.parametrize("group", [1, 4])
def test_answers_do_not_depend_on_the_order_of_decoding(group):
    """16 completions at a time: three batches of 16 prompts or ten of 4, of which the last is filled up."""
    model = small.model_config(num_hidden_layers=1)
    network = CausalLM(model, positions=S + T)
    network.load(fuse(model, small.weights(model)))
    count = 40 if group == 1 else 38
    ids, lengths = small.prompts(model, count, S)
    prompts = Prompts(ids, lengths, ("",) * count, ("",) * count)
    decoder = Decoder(network, small.rollout_config(max_tokens=T), 16 // group, group, S, Numbers.special)
    draws = None if group == 1 else uniforms((5,), count * group, T)
    in_order = complete(decoder, prompts, Numbers(), draws, np.zeros(count))
    assert len(set(in_order[0])) > count // 4 and len(in_order[0]) == count * group
    assert in_order[1] == [len(text.split()) for text in in_order[0]]
    by_length = np.array(in_order[1]).reshape(count, group).max(1)
    for expected in (by_length, -by_length, np.random.default_rng(0).random(count)):
        assert complete(decoder, prompts, Numbers(), draws, expected) == in_order
