"""What a few long completions cost: decoding on fewer rows and training in buckets, each against without.

Decoding: 128 completions of at most 256 tokens that end by chance, 64 tokens long on average. Training: 16
groups of 8 whose lengths spread from prompt to prompt (log-normal, median 48 of 256), in 4 micro-batches.
Hidden 128, 4 layers, vocabulary 2048; in turn, medians of 5.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tests.benchmarks.figures import Figure, paired_medians, write

RUNS = 5
P, G, S, T = 16, 8, 20, 256
ENDS = tuple(range(1, 33))  # of 2048 ids that random weights find about equally likely
NEVER = 10**9
SHAPE = {
    "hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 352, "vocab_size": 2048,
    "initializer_range": 0.02,
}  # fmt: skip


def main(arguments: list[str]) -> bool:
    """Measure, write results/long_tail.json; no bars."""
    argparse.ArgumentParser(prog="tests.benchmarks long_tail", description=__doc__).parse_args(arguments)
    from stages.grpo import worker

    worker.start()
    from stages.grpo.model import CausalLM
    from stages.grpo.parameters import fuse
    from tests.stages.grpo import small

    model = small.model_config(**SHAPE)
    network = CausalLM(model, S + T)
    network.load(fuse(model, small.weights(model)))
    return write("long_tail", decoding(network) + training(network))


def decoding(network: object) -> list[Figure]:
    """Seconds of a rollout with and without smaller decoders."""
    from stages.grpo import rollout
    from stages.grpo.sampling import uniforms
    from tests.stages.grpo import small

    config = small.rollout_config(num_generations=G, max_tokens=T)
    decoder = rollout.Decoder(network, config, P, G, S, ENDS, pad=0)  # type: ignore[arg-type]
    prompt, length = small.prompts(small.model_config(**SHAPE), P, S)
    draws, worthwhile, found = uniforms((1,), P * G, T), rollout.WORTHWHILE, {}

    def side(limit: int) -> float:
        rollout.WORTHWHILE = limit
        began = time.perf_counter()
        found[limit] = decoder.generate(prompt, length, draws)
        return time.perf_counter() - began

    with_s, without_s = paired_medians(RUNS, lambda: side(worthwhile), lambda: side(NEVER))
    rollout.WORTHWHILE = worthwhile
    np.testing.assert_array_equal(found[worthwhile].ids, found[NEVER].ids)
    lengths = found[NEVER].lengths
    return [
        Figure("decoding_gain", without_s / with_s, "ratio"),
        Figure("decoding_s", with_s, "s"),
        Figure("decoding_without_s", without_s, "s"),
        Figure("decoding_mean_length", float(lengths.mean()), "tokens"),
        Figure("decoding_longest", float(lengths.max()), "tokens"),
    ]


def training(network: object) -> list[Figure]:
    """Seconds of an update with buckets and without padding, and with neither."""
    from stages.grpo.batch import Batch
    from stages.grpo.buckets import Bucket
    from stages.grpo.collectives import Groups
    from stages.grpo.learner import Learner
    from stages.grpo.loss import SupervisedLoss
    from stages.grpo.parallel import SINGLE
    from tests.stages.grpo import small
    from tests.stages.grpo.test_loss import train_config

    random = np.random.default_rng(3)
    typical = random.lognormal(np.log(48), 0.8, (P, 1)) * random.lognormal(0, 0.4, (P, G))
    tokens = np.clip(typical, 1, T).astype(int)
    prompt, length = small.prompts(small.model_config(**SHAPE), P, S)
    completion = random.integers(2, SHAPE["vocab_size"], (P, G, T)).astype(np.int32)
    weight = (np.arange(T) < tokens[..., None]).astype(np.float32) / tokens.sum()
    batch = Batch(prompt, length, completion, weight_BT=weight.reshape(-1, T), tokens_PG=tokens)
    config = train_config(learning_rate=1e-9)
    whole = [False] * len(network.names)  # type: ignore[attr-defined]
    learner = Learner(network, SupervisedLoss(), config, SINGLE, Groups(1), whole, 1.0)  # type: ignore[arg-type]
    parts = batch.buckets(SINGLE, 4)
    rows = [Bucket(rows, T) for rows in np.split(np.arange(P), 4)]

    def side(parts: list[Bucket]) -> float:
        began = time.perf_counter()
        learner.update(batch, parts)
        return time.perf_counter() - began

    with_s, without_s = paired_medians(RUNS, lambda: side(parts), lambda: side(rows))
    slots = sum(part.sizes[1] for part in parts if part.sizes) / (P * G * T)
    return [
        Figure("training_gain", without_s / with_s, "ratio"),
        Figure("training_s", with_s, "s"),
        Figure("training_without_s", without_s, "s"),
        Figure("training_tokens_share", float(tokens.mean() / T), "share of all slots"),
        Figure("training_slots_share", slots, "share of all slots"),
    ]
