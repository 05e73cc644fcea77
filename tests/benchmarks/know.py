"""How long a user waits to know: all layouts of 72B on 64 cards, a plan of one, why 64 workers failed.

Whole processes, median of five after one that warms the caches of configurations.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.figures import Figure, at_most, wall_s, write

RUNS = 5
PENDING = 10
HUGE = ["engine=mindrlhf", "model=qwen2_5_72b"]
WORKERS, LOG_BYTES = 64, 4 << 20
LINE = "2026-01-01 10:00:00,000 - mindrlhf - INFO - epoch: 0, step: 1 start, loss: 0.0123\n"


def main(arguments: list[str]) -> bool:
    """Measure, write results/know.json; True when every bar is met."""
    argparse.ArgumentParser(prog="tests.benchmarks know", description=__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        logs = root / "logs"
        logs.mkdir()
        for rank in range(WORKERS):
            text = LINE * (LOG_BYTES // len(LINE)) + "EI0006: Getting socket times out.\n" * (rank != 17)
            (logs / f"worker_{rank}.log").write_text(text, encoding="utf-8")
        store = f"store={root / 'store'}"
        commands = {
            "layouts_72b_64_cards": (["layouts", *HUGE, "cards=64", "--json"], 0, 2.0),
            "plan_72b_64_cards": (["plan", *HUGE, "layout=dp1_mp8_pp8", store, "--json"], PENDING, 0.6),
            "diagnose_64_logs_of_4_mib": (["diagnose", str(logs)], 0, 5.0),
        }
        figures = []
        for name, (words, allowed, bar) in commands.items():
            command = [sys.executable, "-m", "pipeline.cli", *words]
            times = [wall_s(command, Path.cwd(), allowed=allowed) for _ in range(RUNS + 1)][1:]
            took = statistics.median(times)
            figures.append(at_most(name, took, bar, "s") if bar else Figure(name, took, "s"))
    return write("know", figures)
