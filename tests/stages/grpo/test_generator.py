"""Validation during training decodes by the rules of the evaluate stage."""

from dataclasses import dataclass

import pytest

from stages.grpo import generator
from stages.grpo.collectives import Gather
from stages.grpo.data import Prompts
from stages.grpo.evaluate import complete
from stages.grpo.generator import GreedyAccuracy
from stages.grpo.model import CausalLM
from stages.grpo.parallel import SINGLE
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from tests.stages.grpo import small

P, S, T = 16, 8, 20
EOS = (1, 7, 30)


@dataclass(frozen=True)
class Ids:
    """Ids with a meaning."""

    eos: tuple[int, ...] = EOS
    pad: int = 0


class Numbers:
    """A vocabulary whose texts are the ids."""

    special = Ids()

    def texts(self, ids, lengths):
        return [" ".join(map(str, row[:length])) for row, length in zip(ids, lengths, strict=True)]


@pytest.mark.parametrize(("min_tokens", "penalty"), [(0, 1.0), (6, 1.0), (0, 1.4), (9, 1.2)])
def test_validation_gives_the_same_answers_as_evaluate(min_tokens, penalty, monkeypatch):
    model = small.model_config()
    network = CausalLM(model, positions=S + T)
    network.load(fuse(model, small.weights(model)))
    ids, lengths = small.prompts(model, P, S)
    prompts = Prompts(ids, lengths, ("",) * P, tuple("x" * P))
    rules = small.rollout_config(max_tokens=T, min_tokens=min_tokens, repetition_penalty=penalty)
    answers = []
    monkeypatch.setattr(
        generator, "are_right", lambda reward, texts, solutions: answers.extend(texts) or [True] * len(texts)
    )
    assert GreedyAccuracy(network, SINGLE, prompts, rules, Numbers(), Gather(None))() == 1.0
    expected, _ = complete(Decoder(network, rules, P, 1, S, EOS, 0), prompts, Numbers(), None)
    plain, _ = complete(
        Decoder(network, small.rollout_config(max_tokens=T), P, 1, S, EOS, 0), prompts, Numbers(), None
    )
    assert answers == expected
    assert (answers != plain) == (min_tokens > 0 or penalty != 1)
    assert min(len(text.split()) for text in answers) >= max(1, min_tokens)
