"""500 steps of the tiny model: does a worker's memory stay what it was?

Resident memory of every worker, sampled from outside while checks, checkpoints and logs are written as in a
long run. --steps for fewer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from pathlib import Path

import psutil

from tests.benchmarks.figures import Figure, at_least, at_most, write
from tests.stages.grpo.test_workers import ONE, metrics, prepare, run

SETTLED, TOLERANCE = 50, 0.05
LAYOUTS = {"1_worker": ONE, "2_workers": []}
OVERRIDES = [
    "sft.enabled=false", "dataset.train_rows=512", "dataset.test_rows=8", "rollout.num_generations=4",
    "train.prompts_per_step=4", "train.learning_rate=1e-4", "train.checkpoint_every=25",
    "train.validate_every=25", "train.validation_prompts=32", "train.keep_best=true",
    "reward.functions=[tests.benchmarks.grpo_vs_trl:count_ones]", "reward.weights=[1]",
]  # fmt: skip


class Watch(threading.Thread):
    """Samples (steps done, resident GiB of each worker) until stopped."""

    def __init__(self, log: Path) -> None:
        super().__init__(daemon=True)
        self.log, self.samples, self.over = log, list[tuple[int, dict[int, float]]](), threading.Event()

    def run(self) -> None:
        """Sample twice a second."""
        while not self.over.wait(0.5):
            steps = self.log.read_bytes().count(b"\n") if self.log.exists() else 0
            workers = {}
            for child in psutil.Process().children(recursive=True):
                try:
                    if "stages" in child.cmdline() and child.environ().get("MS_ROLE") != "MS_SCHED":
                        workers[child.pid] = child.memory_info().rss / 2**30
                except psutil.Error:
                    continue
            self.samples.append((steps, workers))


def main(arguments: list[str]) -> bool:
    """Measure, write results/soak.json; True when memory stays within 5 % of what it was at step 50."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="which of " + ", ".join(LAYOUTS))
    options = parser.parse_args(arguments)
    figures: list[Figure] = []
    for layout in options.layouts.split(","):
        figures += measure(layout, options.steps)
        met = write("soak", figures)  # each takes minutes: what is measured is kept
    return met


def measure(layout: str, steps: int) -> list[Figure]:
    """All figures of one layout."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        config = prepare(root, [*OVERRIDES, *LAYOUTS[layout], f"train.steps={steps}"])
        watch = Watch(root / "work" / "grpo" / "metrics.jsonl")
        watch.start()
        rows = metrics(run(root, "grpo", config))
        watch.over.set()
        watch.join()
    assert len(rows) == steps
    settled = [(step, workers) for step, workers in watch.samples if SETTLED <= step < steps]
    ratios = {}
    for worker in settled[0][1]:
        held = [(step, workers[worker]) for step, workers in settled if worker in workers]
        start = statistics.median(value for step, value in held if step < SETTLED + steps // 20)
        ratios[worker] = [value / start for _, value in held]
    last = [workers for _, workers in settled][-1]
    return [
        Figure(f"{layout}_steps", steps, "steps"),
        Figure(f"{layout}_samples", len(settled), "samples"),
        at_most(f"{layout}_most_to_step_{SETTLED}", max(map(max, ratios.values())), 1 + TOLERANCE),
        at_least(f"{layout}_least_to_step_{SETTLED}", min(map(min, ratios.values())), 1 - TOLERANCE),
        Figure(f"{layout}_resident_at_the_end_gib", max(last.values()), "GiB"),
        Figure(f"{layout}_step_s", statistics.median(row["step_s"] for row in rows), "s"),
    ]
