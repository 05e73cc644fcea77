"""Validation during training decodes by the rules of the evaluate stage."""

from dataclasses import dataclass, replace

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


def test_validation_gives_the_same_answers_as_evaluate():
    """Every second solution is the last number of what evaluate's functions decode."""
    model = small.model_config(num_hidden_layers=1)
    network = CausalLM(model, positions=S + T)
    network.load(fuse(model, small.weights(model)))
    ids, lengths = small.prompts(model, P, S)
    rules = small.rollout_config(max_tokens=T, min_tokens=9, repetition_penalty=1.2)
    prompts = Prompts(ids, lengths, ("",) * P, ("",) * P)
    texts, tokens = complete(Decoder(network, rules, P, 1, S, EOS, 0), prompts, Numbers(), None)
    assert len(set(texts)) > P / 2 and min(tokens) >= 9
    prompts = replace(
        prompts, solutions=tuple([text.split()[-1], "-1"][i % 2] for i, text in enumerate(texts))
    )
    assert GreedyAccuracy(network, SINGLE, prompts, rules, Numbers(), Gather(None))() == 0.5
