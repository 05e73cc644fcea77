"""Memory and time of one GRPO step of a model with the shape of Qwen2.5-0.5B.

Random weights, the real shape (24 layers, vocabulary 151,936), stored in bfloat16, trained and generating in
float32 with a reference (beta > 0) and AdamW; short prompts and completions. The second step is timed: the
first one compiles.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.benchmarks.figures import Figure, at_most, write
from tests.stages.grpo.test_workers import metrics, prepare, run

LIMIT_GIB, LIMIT_S = 11.0, 20.0
PROMPTS, GENERATIONS, TOKENS = 2, 4, 32
TURN = itertools.cycle(range(GENERATIONS))
OVERRIDES = [
    "model=qwen2_5_0_5b", "model.source=builtin", "model.hub=null", "model.variant=base", "dataset=arith",
    "layout=dp1_mp1_pp1", "dataset.train_rows=64", "dataset.test_rows=8", "sft.enabled=false",
    f"rollout.num_generations={GENERATIONS}", f"rollout.max_tokens={TOKENS}", f"rollout.min_tokens={TOKENS}",
    f"train.prompts_per_step={PROMPTS}", "train.steps=2", "train.warmup_steps=0", "train.learning_rate=1e-6",
    "train.beta=0.01", "train.checkpoint_every=0",
    "reward.functions=[tests.benchmarks.half_billion:in_turn]", "reward.weights=[1]",
]  # fmt: skip


def in_turn(completions: Sequence[str], solutions: Sequence[str]) -> list[float]:
    """Return rewards that differ within a group, because most ids of this vocabulary have no text here."""
    del solutions
    return [next(TURN) / GENERATIONS for _ in completions]


def main(arguments: list[str]) -> bool:
    """Measure and write results/half_billion.json; return True if it fits."""
    argparse.ArgumentParser(prog="tests.benchmarks half_billion", description=__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        config = prepare(Path(directory), OVERRIDES)
        before = psutil.swap_memory().sout
        rows = metrics(run(Path(directory), "grpo", config))
        swapped = psutil.swap_memory().sout - before
    assert all(row["completion_length"] == TOKENS and row["grad_norm"] > 0 for row in rows)
    first, second = rows
    return write(
        "half_billion",
        [
            Figure("parameters", config.model.num_parameters, "elements"),
            Figure("completions_per_step", PROMPTS * GENERATIONS, f"of {TOKENS} tokens"),
            at_most("peak_memory_gib", second["peak_memory_gib"], LIMIT_GIB, "GiB"),
            at_most("swapped_out_gib", swapped / 2**30, 0.0, "GiB"),
            Figure("first_step_s", first["step_s"], "s"),
            at_most("step_s", second["step_s"], LIMIT_S, "s"),
            *(Figure(key, second[key], "s") for key in ("rollout_s", "reference_s", "train_s")),
        ],
    )
