"""Completions per second of grpo with engine=verl on a CPU next to engine=local, on two workers.

Same model, prompts, group size and beta; completions have their full length. One `grpoflow run` of each;
medians of the steps after warm-up. --verl-python names an interpreter with verl; by default the environment
of `make upstream`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Figure, wall_s, write
from tests.benchmarks.noop import BIN
from tests.e2e.outside import rows
from tests.upstream.sources import interpreter

WARM_UP, MEASURED = 3, 7
PROMPTS, GENERATIONS, TOKENS = 8, 8, 32
RECIPE = [
    "model=tiny_qwen3", "dataset.train_rows=256", "dataset.test_rows=8", "sft.enabled=false",
    f"rollout.num_generations={GENERATIONS}", f"rollout.max_tokens={TOKENS}",
    f"train.prompts_per_step={PROMPTS}", f"train.steps={WARM_UP + MEASURED}", "train.beta=0.01",
    "train.warmup_steps=0", "train.checkpoint_every=0",
    "layout.train.data_parallel=2", "layout.train.model_parallel=1",
]  # fmt: skip
LOCAL = [f"rollout.min_tokens={TOKENS}"]
VERL = ["engine=verl", "engine.device=cpu", "train.schedule=constant"]
VERL += ["+engine.upstream.actor_rollout_ref.rollout.ignore_eos=true"]


def main(arguments: list[str]) -> bool:
    """Measure and write results/engines.json."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks engines", description=__doc__)
    parser.add_argument("--verl-python", type=Path, default=interpreter("verl"))
    python = parser.parse_args(arguments).verl_python
    with tempfile.TemporaryDirectory() as directory:
        sides = {"local": measure(Path(directory), "local", LOCAL)}
        if python.exists():
            sides["verl"] = measure(Path(directory), "verl", [*VERL, f"engine.python={python}"])
    rates = {name: PROMPTS * GENERATIONS / side["step_s"] for name, side in sides.items()}
    ratio = rates["verl"] / rates["local"] if "verl" in rates else None
    return write(
        "engines",
        [
            Figure("verl_local_ratio", ratio, "ratio", met=None if "verl" in rates else False),
            *(Figure(f"{name}_completions_per_s", value, "1/s") for name, value in rates.items()),
            *(
                Figure(f"{name}_{key}", value, "s")
                for name, side in sides.items()
                for key, value in side.items()
            ),
        ],
    )


def measure(root: Path, name: str, overrides: list[str]) -> dict[str, float]:
    """Return the median times of a run's steps, and the complete time of the run."""
    store = root / name
    command = [str(BIN / "grpoflow"), "run", f"store={store}", "--until", "grpo", *RECIPE, *overrides]
    seconds = wall_s(command, root)
    steps: list[dict[str, Any]] = rows(store, "grpo")[WARM_UP:]
    assert all(step["completion_length"] == TOKENS for step in steps)
    medians = {key: statistics.median(step[key] for step in steps) for key in ("step_s", "rollout_s")}
    return {**medians, "run_s": seconds}
