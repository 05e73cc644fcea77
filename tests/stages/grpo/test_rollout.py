import numpy as np

from stages.grpo import rollout
from stages.grpo.model import CausalLM
from stages.grpo.parameters import fuse
from stages.grpo.rollout import Decoder
from stages.grpo.sampling import uniforms
from tests.stages.grpo import small

P, S, G, T = 4, 6, 4, 40
ENDS = tuple(range(1, 12))  # of 96 ids: few completions are long


def test_carrying_the_rest_over_to_smaller_decoders_changes_no_completion(monkeypatch):
    model = small.model_config()
    network = CausalLM(model, positions=S + T)
    network.load(fuse(model, small.weights(model)))
    prompt, length = small.prompts(model, P, S)
    config = small.rollout_config(max_tokens=T, repetition_penalty=1.3)

    def complete(seed):
        return decoder.generate(prompt, length, uniforms((seed,), P * G, T))

    decoder = Decoder(network, config, P, G, S, ENDS, pad=0)
    wanted = [complete(seed) for seed in (1, 2)]
    assert not decoder._smaller
    monkeypatch.setattr(rollout, "FEWEST", 2)
    monkeypatch.setattr(rollout, "WORTHWHILE", 1)
    for seed, other in zip((1, 2), wanted, strict=True):
        found = complete(seed)
        np.testing.assert_array_equal(found.ids, other.ids)
        np.testing.assert_array_equal(found.lengths, other.lengths)
        assert other.lengths.min() < 8 and other.lengths.max() > 16  # some ended early, some went on
    assert len(decoder._smaller) >= 1


def test_the_fewest_rows_that_hold_those_still_running(monkeypatch):
    monkeypatch.setattr(rollout, "FEWEST", 4)
    monkeypatch.setattr(rollout, "WORTHWHILE", 10)
    model = small.model_config()
    decoder = Decoder(CausalLM(model, positions=S + T), small.rollout_config(), 4, 6, S, ENDS, pad=0)
    sizes = {
        (running, left): decoder.fitting(running, left).B
        for running in (24, 13, 12, 7, 6, 1)
        for left in (9, 10)
    }
    assert {running: size for (running, left), size in sizes.items() if left == 10} == {
        24: 24, 13: 24, 12: 12, 7: 12, 6: 6, 1: 6,
    }  # fmt: skip
    assert {size for (_, left), size in sizes.items() if left == 9} == {24}
