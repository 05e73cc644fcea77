"""A sweep of 24 points with 3 shared prefixes on Slurm with one node and with four, which run one job each.

The nodes are daemons of this machine. Stages sleep instead of computing, so that its cores are no limit; what
is measured is how many of the nodes the sweep keeps busy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.figures import Figure, at_most, write
from tests.e2e import sleeping, sweeping
from tests.launch.cluster import cluster

SEEDS, RATES, NODES = 3, 8, 4
RATIO_TARGET = 0.35
EXPECTED = Counter({"split": SEEDS, "sft": SEEDS, "grpo": SEEDS * RATES})


def main(arguments: list[str]) -> bool:
    """Measure, write results/slurm_sweep.json; return True if the target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks slurm_sweep", description=__doc__)
    parser.add_argument("--grpo", type=float, default=15.0, help="seconds that grpo sleeps; sft: as long")
    options = parser.parse_args(arguments)
    seconds = {"split_s": 2.0, "sft_s": options.grpo, "grpo_s": options.grpo}
    try:
        measured = {count: sweep(count, seconds) for count in (NODES, 1)}
    except pytest.skip.Exception as reason:
        print(f"slurm_sweep: {reason}")
        measured = {}
    ratio = measured[NODES] / measured[1] if measured else None
    slept = SEEDS * (seconds["split_s"] + seconds["sft_s"]) + SEEDS * RATES * seconds["grpo_s"]
    return write(
        "slurm_sweep",
        [
            at_most("wall_ratio", ratio, RATIO_TARGET),
            Figure("four_nodes_s", measured.get(NODES), "s"),
            Figure("one_node_s", measured.get(1), "s"),
            Figure("stages_alone_s", slept, "s"),
        ],
    )


def sweep(nodes: int, seconds: dict[str, float]) -> float:
    """Return the seconds of the sweep with an empty store on `nodes` nodes; each stage must run once."""
    root = Path(tempfile.mkdtemp(prefix="slurm-sweep-"))
    (root / "slurm").mkdir()
    store, journal = root / "store", root / "journal"
    words = [*sleeping.overrides(store, **seconds), *sleeping.grid(SEEDS, RATES)]
    words += ["launcher=slurm", "launcher.stages=all"]
    with cluster(root / "slurm", count=nodes, cpus=1), (root / "output").open("wb") as output:
        began = time.monotonic()
        line = sleeping.command("sweep", words)
        environment = {**sleeping.environment(journal), "SLURM_CONF": os.environ["SLURM_CONF"]}
        subprocess.run(line, cwd=root, env=environment, stdout=output, stderr=output, check=True)
        taken = time.monotonic() - began
    assert sweeping.count(store) == EXPECTED
    assert all(
        [event.kind for event in lines] == ["begin", "end"] for lines in sleeping.read(journal).values()
    )
    print(f"{nodes} nodes: {taken:.1f} s", flush=True)
    shutil.rmtree(root)
    return taken
