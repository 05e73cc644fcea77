"""The default run from nothing, by its parts: what of it is training, and what is everything around it.

Each run is a process of the command line with a store of its own. A training stage is taken apart by its
log: what passes before the second step (interpreters, imports, workers that meet, compilation, the first
step), the steps after it, and what comes after the last.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.store.store import MANIFEST, Manifest
from stages.base.files import read_json
from stages.grpo.metrics import read_rows
from tests.benchmarks.figures import Figure, at_least, at_most, write

LIMIT_S, GAIN = 90.0, 0.3
TRAINING = ("sft", "grpo")


def main(arguments: list[str]) -> bool:
    """Measure, write results/start.json; True when the default run is short enough and still learns."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks start", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs, with seeds 0, 1, …")
    parser.add_argument("overrides", nargs="*", help="for example layout=dp1_mp1_pp1")
    options = parser.parse_args(arguments)
    parts, gains = [], []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as directory:
            run_s = run(Path(directory), [f"seed={seed}", *options.overrides])
            parts.append(taken_apart(Path(directory), run_s))
            gains.append(read_json(artifact(Path(directory), "evaluate") / "result.json")["gain"])
        told = ", ".join(f"{name} {value:.1f}" for name, value in parts[-1].items())
        print(f"seed {seed}: gain {gains[-1]:.3f}; seconds: {told}", flush=True)
    medians = {name: statistics.median(one[name] for one in parts) for name in parts[0]}
    figures = [
        at_most("default_run_s", medians.pop("run"), LIMIT_S, "s"),
        at_least("least_gain", min(gains), GAIN, "share"),
    ]
    return write("start", [*figures, *(Figure(f"{name}_s", value, "s") for name, value in medians.items())])


def run(store: Path, overrides: Sequence[str]) -> float:
    """Seconds that `grpoflow run` takes."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "pipeline.cli", "run", f"store={store}", *overrides],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.monotonic() - began


def artifact(store: Path, stage: str) -> Path:
    """The only artifact of a stage."""
    (manifest,) = (store / stage).glob(f"*/{MANIFEST}")
    return manifest.parent


def taken_apart(store: Path, run_s: float) -> dict[str, float]:
    """Seconds by part; "around" is what no stage took."""
    parts = {"run": run_s}
    for manifest in sorted(store.glob(f"*/*/{MANIFEST}")):
        stage = Manifest.read(manifest)
        taken = stage.ended - stage.started
        if stage.stage in TRAINING:
            rows = read_rows(manifest.parent / "metrics.jsonl")
            parts |= {f"{stage.stage}_{name}": value for name, value in steps(stage, rows).items()}
        else:
            parts[stage.stage] = taken
    parts["around"] = run_s - sum(value for name, value in parts.items() if name != "run")
    return parts


def steps(stage: Manifest, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What passes before the second step of a training stage, from there to the last, and after it."""
    first, last = rows[0]["time_s"], rows[-1]["time_s"]
    return {"before": first - stage.started, "steps": last - first, "after": stage.ended - last}
