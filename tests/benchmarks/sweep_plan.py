"""Time of `grpoflow sweep --plan` per point, next to Hydra's own multirun of an empty job."""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.benchmarks.figures import Figure, at_most, paired_medians, wall_s, write

POINT_BAR_S = 0.06
GRPOFLOW = Path(sys.executable).parent / "grpoflow"
EMPTY_JOB = """
import hydra

@hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
def job(config):
    pass

job()
"""


def main(arguments: list[str]) -> bool:
    """Measure, write results/sweep_plan.json; True when every bar is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks sweep_plan", description=__doc__)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--shared", type=int, default=100, help="points that Hydra composes, too")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        job = root / "job.py"
        job.write_text(EMPTY_JOB, encoding="utf-8")

        def ours(count: int) -> float:
            return wall_s([str(GRPOFLOW), "sweep", "--plan", f"store={root / 's'}", *_grid(count)], root)

        def hydras() -> float:
            return wall_s([sys.executable, str(job), "--multirun", *_grid(options.shared)], root)

        (many,) = paired_medians(options.runs, partial(ours, options.points))
        few, peer = paired_medians(1, partial(ours, options.shared), hydras)
    return write(
        "sweep_plan",
        [
            at_most("s_per_point", many / options.points, POINT_BAR_S, "s"),
            Figure("hydra_ratio", few / peer, "ratio"),
            Figure("points", options.points, "points"),
            Figure("sweep_plan_s", many, "s"),
            Figure("shared_points", options.shared, "points"),
            Figure("shared_s", few, "s"),
            Figure("hydra_s", peer, "s"),
        ],
    )


def _grid(count: int) -> list[str]:
    """`count` points, a multiple of 10, that differ in a seed and in a value of training."""
    betas = ",".join(f"0.0{n}" for n in range(10))
    return [f"seed={','.join(map(str, range(count // 10)))}", f"train.beta={betas}"]
