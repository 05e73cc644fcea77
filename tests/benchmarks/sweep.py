"""Compare a sweep of 12 points with 3 shared prefixes with 12 separate runs, and kill the sweep 5 times."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.benchmarks.figures import Figure, at_least, at_most, survivors, write
from tests.e2e import sweeping

RATIO_TARGET, KILLS_TARGET = 0.5, 5


def main(arguments: list[str]) -> bool:
    """Measure, kill, write results/sweep.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks sweep", description=__doc__)
    parser.add_argument(
        "--cards", type=int, default=2, help="cards of this machine; runs with one card run in parallel"
    )
    parser.add_argument("--kills", type=int, default=KILLS_TARGET)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="sweep-"))
    separate = sweeping.separate(root)
    print(f"separate: {separate:.1f} s", flush=True)
    complete = sweeping.shared_sweep(root, options.cards)
    print(f"one sweep: {complete:.1f} s", flush=True)

    def killed(directory: Path) -> int:
        finished = sweeping.killed_trial(directory, complete, options.kills, chance, options.cards)
        print(f"finished artifacts at each kill: {finished}", flush=True)
        return 0

    chance = random.Random(options.seed)
    failed, _ = survivors(root, {"killed": killed} if options.kills else {})
    return write(
        "sweep",
        [
            at_most("wall_ratio", complete / separate, RATIO_TARGET),
            Figure("sweep_s", complete, "s"),
            Figure("separate_runs_s", separate, "s"),
            Figure("stages_of_the_sweep", sweeping.EXPECTED.total(), "stages"),
            at_least("kills", options.kills, KILLS_TARGET, "kills"),
            at_most("killed_sweeps_that_repeated_or_lost_work", failed, 0, "sweeps"),
        ],
    )
