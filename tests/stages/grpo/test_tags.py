"""Training, validation and evaluation give rewards the tag that a prompt has opened."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.config.load import defaults
from stages.grpo import evaluate
from stages.grpo.answers import judge
from stages.grpo.collectives import Gather
from stages.grpo.data import Prompts, Vocabulary
from stages.grpo.generator import GreedyAccuracy
from stages.grpo.metrics import Clock
from stages.grpo.parallel import SINGLE
from stages.grpo.rollout import Completions
from stages.grpo.trainer import Trainer
from stages.rewards.config import RewardConfig
from stages.tokenizer import SpecialIds, keep_tags, special_token, train

TRUTH = "Zoey is a knave"
COMPLETION = "They lie.\n</think>\n<answer>Zoey is a knave.</answer>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
KNIGHTS, FORMAT = RewardConfig(("knights",), (1.0,), None), RewardConfig(("format",), (1.0,), None)
P, G = 3, 2


@pytest.fixture(scope="module")
def vocabulary():
    """A vocabulary with the tags as special tokens; the end token comes last."""
    tokenizer = train([COMPLETION, TRUTH] * 5, 320)
    tokenizer.add_special_tokens([special_token(tag) for tag in TAGS])
    end = tokenizer.token_to_id("<|im_end|>")
    return Vocabulary(keep_tags(tokenizer), SpecialIds(None, (end,), tokenizer.token_to_id("<|endoftext|>")))


class Fixed:
    """A decoder that completes every prompt with the same text."""

    P, T = P, 64

    def __init__(self, vocabulary, group_size):
        self.G = group_size
        self.special = vocabulary.special
        self.ids = [*vocabulary.tokenizer.encode(COMPLETION).ids, self.special.eos[0]]

    def generate(self, ids, lengths, draws):
        row = self.ids + [self.special.pad] * (self.T - len(self.ids))
        return Completions.from_ids(np.array([row] * self.P * self.G, np.int32), self.special.eos)

    def sample(self, prompts, step, attempt):
        return self.generate(prompts.ids, prompts.lengths, None)


def prompts_of(vocabulary, text):
    ids = np.array([vocabulary.tokenizer.encode(text).ids] * P, np.int32)
    lengths = np.full(P, ids.shape[1], np.int32)
    return Prompts(ids, lengths, tuple(vocabulary.texts(ids, lengths)), (TRUTH,) * P)


CASES = pytest.mark.parametrize(("prompt", "opens"), [("Who?\n<think>\n", True), ("Who?\n", False)])


@CASES
def test_training(vocabulary, prompt, opens):
    job = SimpleNamespace(
        train=SimpleNamespace(prompts_per_step=P, resample_rounds=0),
        rollout=SimpleNamespace(num_generations=G), reward=FORMAT, seed=0,
    )  # fmt: skip
    trainer = SimpleNamespace(
        job=job, resharded=SimpleNamespace(refresh=lambda: None), data=prompts_of(vocabulary, prompt),
        position=0, generator=Fixed(vocabulary, G), vocabulary=vocabulary, rank=0, world=Gather(None),
    )  # fmt: skip
    sampled = Trainer.sample(trainer, 1, Clock())
    assert sampled.rewards.total.tolist() == [float(opens)] * P * G
    assert sampled.texts == [COMPLETION] * P * G  # as it was generated


@CASES
def test_validation_and_evaluation(vocabulary, prompt, opens):
    prompts = prompts_of(vocabulary, prompt)
    validation = SimpleNamespace(
        decoder=Fixed(vocabulary, 1), mine=prompts, prompts=prompts, mesh=SINGLE, world=Gather(None),
        vocabulary=vocabulary, reward=KNIGHTS,
    )  # fmt: skip
    assert GreedyAccuracy.__call__(validation) == float(opens)
    config = replace(defaults().evaluate, sample_prompts=P, num_samples=G)
    decoders = Fixed(vocabulary, 1), Fixed(vocabulary, G)
    done = evaluate.generate(*decoders, prompts, vocabulary, config, 0, prompts.lengths)
    made = judge(SimpleNamespace(section=lambda cls, name: KNIGHTS), done, prompts, config)
    assert made.right.tolist() == [opens] * P and made.sampled_right.tolist() == [[opens] * G] * P
    assert (made.rewards.total > 0).tolist() == [opens] * P and made.texts == [COMPLETION] * P
