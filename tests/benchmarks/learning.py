"""Compare the accuracy that GRPO reaches with TRL's: same weights, prompts, rewards and settings; 3 seeds.

The initial weights come from a short supervised training. Every few steps, both are evaluated with greedy
decoding on prompts that are not used for training; results/learning.json contains all curves. --trl-python
names an interpreter with TRL.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pipeline.config.load import load as compose
from pipeline.config.sections import Config
from stages.grpo.data import Vocabulary, read_prompts
from stages.grpo.optimizer import learning_rate
from stages.weights.export import export
from stages.weights.sources import open_ranks
from stages.weights.strategy.files import read_strategy
from tests.benchmarks.figures import Figure, at_least, at_most, write
from tests.benchmarks.peers import train_with_trl
from tests.stages.grpo.test_workers import metrics, prepare, run

STEPS, EVERY, HELD_OUT = 16, 4, 256
CONFIG = [
    "layout=dp1_mp1_pp1", f"train.steps={STEPS}", "train.checkpoint_every=0", f"train.validate_every={EVERY}",
    f"train.validation_prompts={HELD_OUT}", "evaluate.sample_prompts=0", f"evaluate.num_prompts={HELD_OUT}",
]  # fmt: skip
T_975 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 6: 2.45, 8: 2.31}
"""97.5 % quantile of Student's t by degrees of freedom."""
Curve = list[tuple[int, float]]


def main(arguments: list[str]) -> bool:
    """Measure and write results/learning.json; return True if both learn equally well."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks learning", description=__doc__)
    parser.add_argument(
        "--trl-python", help="interpreter that can import trl; without it targets are not met"
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        actual, reference = curves(Path(directory), options.trl_python, range(options.seeds))
    return write(
        "learning", [*verdict(actual, reference), *points("ours", actual), *points("trl", reference)]
    )


def curves(root: Path, trl_python: str | None, seeds: Sequence[int]) -> tuple[list[Curve], list[Curve]]:
    """Return accuracy by step for each seed, of grpoflow and of TRL (empty without an interpreter)."""
    start = prepare(root, CONFIG)
    weights = open_ranks(
        run(root, "sft", start) / "train", read_strategy(root / "strategy" / "train_strategy")
    )
    (root / "start").mkdir()
    export(weights, root / "fetch", root / "start", start.model, None)
    actual, reference = [], []
    for seed in seeds:
        config = compose([*CONFIG, f"seed={seed}"])
        rows = metrics(run(root, "grpo", config))
        checks = [(row["step"], row["validation_accuracy"]) for row in rows if "validation_accuracy" in row]
        actual.append(checks)
        if trl_python:
            reference.append(peer(root, trl_python, config))
    # Both start from the same weights, and greedy decoding is the same: TRL's first check is ours, too.
    return [
        [*second[:1], *curve] for curve, second in zip(actual, reference or [[]] * len(actual), strict=True)
    ], reference


def peer(root: Path, python: str, config: Config) -> Curve:
    """Return TRL's accuracies with the weights, prompts and settings of grpoflow's run."""
    vocabulary = Vocabulary.read(root / "fetch", config.model)
    prompts = read_prompts(root / "tokenize" / "train.mindrecord", vocabulary)
    rates = [learning_rate(config.train, step) / config.train.learning_rate for step in range(STEPS + 1)]
    train, rollout = config.train, config.rollout
    arguments = {
        "seed": config.seed, "per_device_train_batch_size": train.prompts_per_step * rollout.num_generations,
        "num_generations": rollout.num_generations, "max_completion_length": rollout.max_tokens,
        "temperature": rollout.temperature, "top_p": 1.0, "top_k": 0, "max_steps": train.steps,
        "num_iterations": train.num_iterations, "beta": train.beta, "epsilon": train.epsilon_low,
        "epsilon_high": train.epsilon_high, "loss_type": train.loss_type,
        "reward_weights": config.reward.weights,
        "scale_rewards": "group" if train.scale_advantages else "none", "max_grad_norm": train.max_grad_norm,
    }  # fmt: skip
    settings = {
        "model": str(root / "start"), "texts": prompts.texts, "solutions": prompts.solutions,
        "held_out": HELD_OUT, "every": EVERY, "rates": rates, "functions": config.reward.functions,
        "train": config.plain()["train"], "arguments": arguments,
    }  # fmt: skip
    result = train_with_trl(python, root, settings)
    return [(int(step), float(accuracy)) for step, accuracy in result["checks"]]


def noise(local: Sequence[float], trl: Sequence[float]) -> float:
    """Return the distance of the means of two samples of accuracies that chance exceeds in 5 % of cases.

    Welch's interval; the variance of one accuracy is at least that of HELD_OUT answers, each right by chance.
    """
    spread = 0.0
    for side in (local, trl):
        mean = statistics.mean(side)
        seen = statistics.variance(side) if len(side) > 1 else 0.0
        spread += max(seen, mean * (1 - mean) / HELD_OUT) / len(side)
    return T_975[max(1, len(local) + len(trl) - 2)] * math.sqrt(spread)


def verdict(local: Sequence[Curve], trl: Sequence[Curve]) -> list[Figure]:
    """Return the figures: both must learn, and equally well."""
    last = [curve[-1][1] for curve in local]
    figures = [Figure("ours_accuracy", statistics.mean(last), "share")]
    if not trl:
        return [
            *figures,
            at_most("difference", None, 0.0, "share"),
            at_least("ours_gain", None, 0.1, "share"),
        ]
    remaining, begin = [curve[-1][1] for curve in trl], trl[0][0][1]
    difference = statistics.mean(last) - statistics.mean(remaining)
    return [
        Figure("accuracy_at_the_start", begin, "share"),
        *figures,
        Figure("trl_accuracy", statistics.mean(remaining), "share"),
        Figure("difference", difference, "share"),
        at_most("difference_without_sign", abs(difference), noise(last, remaining), "share"),
        at_least("ours_gain", statistics.mean(last) - begin, 0.1, "share"),
        at_least("trl_gain", statistics.mean(remaining) - begin, 0.1, "share"),
    ]


def points(side: str, actual: Sequence[Curve]) -> list[Figure]:
    """Return a figure for every point of the curves."""
    return [
        Figure(f"{side}_seed{seed}_step{step}", accuracy, "share")
        for seed, curve in enumerate(actual)
        for step, accuracy in curve
    ]
