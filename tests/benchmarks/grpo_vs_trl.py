"""Compare the completions per second of the grpo stage with those of TRL's GRPOTrainer on the same cores.

Same weights, prompts, lengths, group size and beta; all completions have the full length. One
process each, one after the other; medians of the steps after warm-up. --trl-python names an interpreter
with TRL.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.grpo.data import Vocabulary, read_prompts
from tests.benchmarks.figures import Figure, at_least, at_most, write
from tests.benchmarks.peers import train_with_trl
from tests.stages.grpo.test_workers import metrics, prepare, run

WARM_UP, MEASURED = 3, 7
P, G = 8, 8
RATIO, MEMORY_RATIO, SCALING = 2.0, 1.1, 0.95
SHAPES = {
    "small": {"hidden": 128, "layers": 4, "intermediate": 352, "tokens": 64, "micro_batches": 2},
    "large": {"hidden": 256, "layers": 8, "intermediate": 704, "tokens": 128, "micro_batches": 4},
}
"""Micro-batches give the same gradient with fewer activations. The targets compare with TRL's default, which
trains on all completions at once; TRL with the same number of micro-batches is measured, too."""
LAYOUTS = {
    1: ["layout.train.model_parallel=1", "layout.generate.data_parallel=1"],
    2: ["layout.train.data_parallel=2", "layout.train.model_parallel=1"],
}


def count_ones(completions: Sequence[str], solutions: Sequence[str]) -> list[float]:
    """Return rewards that differ between completions."""
    del solutions
    return [completion.count("1") / 10 for completion in completions]


def main(arguments: list[str]) -> bool:
    """Measure and write results/grpo_vs_trl.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks grpo_vs_trl", description=__doc__)
    parser.add_argument(
        "--trl-python", help="interpreter that can import trl; without it targets are not met"
    )
    parser.add_argument("--sizes", default="small,large", help="which of small and large")
    parser.add_argument("--random", type=int, default=3, help="number of additional random shapes")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(2**32), help="seed of the random shapes; printed"
    )
    options = parser.parse_args(arguments)
    shapes = {size: SHAPES[size] for size in options.sizes.split(",") if size}
    random = np.random.default_rng(options.seed)
    shapes |= {f"random_{number}": draw(random) for number in range(options.random)}
    print(f"grpo_vs_trl: --seed {options.seed}: {shapes}", flush=True)
    figures = [Figure("seed", options.seed, "of the random shapes")]
    for size, shape in shapes.items():
        figures += measure(size, shape, options.trl_python)
    return write("grpo_vs_trl", figures)


def draw(random: np.random.Generator) -> dict[str, int]:
    """Return a random shape, from slightly below the small one up to the large one."""
    hidden = int(random.integers(6, 17)) * 16
    return {
        "hidden": hidden,
        "layers": int(random.integers(2, 9)),
        "intermediate": hidden * 11 // 4,
        "tokens": int(random.integers(2, 9)) * 16,
        "micro_batches": int(random.choice([2, 4])),
    }


def measure(size: str, shape: dict[str, int], trl_python: str | None) -> list[Figure]:
    """Return all figures of one size."""
    sides: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for workers in LAYOUTS:
            rows = ours(root / str(workers), shape, workers)
            sides[f"{workers}_worker"] = summary(rows[WARM_UP:], rows[-1]["peak_memory_gib"])
        if trl_python is not None:
            for name, micro_batches in (("trl", 1), ("trl_in_micro_batches", shape["micro_batches"])):
                result = theirs(root, shape, trl_python, micro_batches)
                sides[name] = summary(result["steps"][WARM_UP:], result["peak_memory_gib"])
    rate = {name: P * G / side["step_s"] for name, side in sides.items()}
    ratio, memory = relative_to("trl", sides, rate)
    ratio_in_micro_batches, memory_in_micro_batches = relative_to("trl_in_micro_batches", sides, rate)
    return [
        at_least(f"{size}_ratio", ratio, RATIO),
        at_most(f"{size}_memory_ratio", memory, MEMORY_RATIO),
        Figure(f"{size}_ratio_in_micro_batches", ratio_in_micro_batches, "ratio"),
        Figure(f"{size}_memory_ratio_in_micro_batches", memory_in_micro_batches, "ratio"),
        at_least(f"{size}_scaling_to_2_workers", rate["2_worker"] / rate["1_worker"], SCALING),
        *(Figure(f"{size}_{name}_completions_per_s", value, "1/s") for name, value in rate.items()),
        *(
            Figure(f"{size}_{name}_{key}", side[key], "GiB" if key.endswith("gib") else "s")
            for name, side in sides.items()
            for key in ("rollout_s", "rest_s", "peak_memory_gib")
        ),
    ]


def relative_to(
    peer: str, sides: dict[str, dict[str, float]], rate: dict[str, float]
) -> tuple[float | None, float | None]:
    """Return grpoflow's rate and peak memory divided by those of `peer`; None if it was not measured."""
    if peer not in sides:
        return None, None
    memory = sides["1_worker"]["peak_memory_gib"] / sides[peer]["peak_memory_gib"]
    return rate["1_worker"] / rate[peer], memory


def summary(steps: Sequence[dict[str, float]], peak: float) -> dict[str, float]:
    """Return median times of steps: total, generation, and the remainder (log-probabilities, update)."""
    complete = statistics.median(step["step_s"] for step in steps)
    rollout = statistics.median(step["rollout_s"] for step in steps)
    return {"step_s": complete, "rollout_s": rollout, "rest_s": complete - rollout, "peak_memory_gib": peak}


def overrides(shape: dict[str, int], workers: int) -> list[str]:
    """Return the overrides of one size."""
    return [
        f"model.hidden_size={shape['hidden']}", f"model.num_hidden_layers={shape['layers']}",
        f"model.intermediate_size={shape['intermediate']}", "model.vocab_size=2048",
        "dataset.train_rows=256", "dataset.test_rows=8", "sft.enabled=false",
        f"rollout.num_generations={G}", f"rollout.max_tokens={shape['tokens']}",
        f"rollout.min_tokens={shape['tokens']}", f"train.prompts_per_step={P}", "train.beta=0.01",
        f"train.steps={WARM_UP + MEASURED}", "train.warmup_steps=0", "train.checkpoint_every=0",
        "reward.functions=[tests.benchmarks.grpo_vs_trl:count_ones]", "reward.weights=[1]",
        *(f"layout.{role}.micro_batch_num={shape['micro_batches']}" for role in ("train", "reference")),
        *LAYOUTS[workers],
    ]  # fmt: skip


def ours(root: Path, shape: dict[str, int], workers: int) -> list[dict[str, Any]]:
    """Train with grpoflow; return the rows of metrics.jsonl."""
    config = prepare(root, overrides(shape, workers))
    rows: list[dict[str, Any]] = metrics(run(root, "grpo", config))
    assert all(row["completion_length"] == shape["tokens"] for row in rows)
    return rows


def theirs(root: Path, shape: dict[str, int], python: str, micro_batches: int) -> dict[str, Any]:
    """Train with TRL and grpoflow's weights and prompts; return the times of its steps."""
    config = prepare(root / "peer", overrides(shape, 1))
    vocabulary = Vocabulary.read(root / "peer" / "fetch", config.model)
    prompts = read_prompts(root / "peer" / "tokenize" / "train.mindrecord", vocabulary)
    train = config.train
    arguments = {
        "per_device_train_batch_size": P * G // micro_batches, "gradient_accumulation_steps": micro_batches,
        "num_generations": G, "max_completion_length": shape["tokens"], "max_steps": WARM_UP + MEASURED,
        "generation_kwargs": {"min_new_tokens": shape["tokens"]}, "temperature": 1.0, "beta": train.beta,
        "loss_type": train.loss_type, "learning_rate": train.learning_rate, "adam_beta1": train.adam_beta1,
        "adam_beta2": train.adam_beta2, "max_grad_norm": train.max_grad_norm,
    }  # fmt: skip
    settings = {"model": str(root / "peer" / "fetch"), "texts": prompts.texts, "arguments": arguments}
    return train_with_trl(python, root, settings)
