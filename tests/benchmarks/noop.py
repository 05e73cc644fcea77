"""Measure the time of a run whose stages are all complete, compared with DVC and Snakemake on the same graph.

noop is `luigi --module pipeline RunGRPO`; noop_run is `grpoflow run`, which then does not start Luigi.
sweep_plan is `grpoflow sweep --plan` with 1,000 points; it is not compared with another program.
DVC and Snakemake are installed in separate environments: --dvc PATH and --snakemake PATH, by default the
programs on $PATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from pipeline.plan.graph import Plan
from tests.benchmarks.figures import Figure, at_most, paired_medians, wall_s, write
from tests.pipeline.artifacts import complete

RUNS = 5
DVC_TARGET = 0.8
SNAKEMAKE_TARGET = 0.4
SWEEP_PLAN_TARGET_S = 60.0
GRID = [f"seed={','.join(map(str, range(100)))}", f"train.beta={','.join(f'0.0{n}' for n in range(10))}"]
BIN = Path(sys.executable).parent


def main(arguments: list[str]) -> bool:
    """Measure and write results/noop.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks noop", description=__doc__)
    parser.add_argument("--dvc", default=shutil.which("dvc"))
    parser.add_argument("--snakemake", default=shutil.which("snakemake"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        return write("noop", _measure(Path(directory), options.dvc, options.snakemake))


def _measure(root: Path, dvc: str | None, snakemake: str | None) -> list[Figure]:
    plan, store = complete([f"store={root / 'store'}"])
    env = {"XDG_CACHE_HOME": str(root / "cache")}
    overrides = f"store={store.root}"
    by_luigi = partial(
        wall_s, [str(BIN / "luigi"), "--module", "pipeline", "RunGRPO", "--overrides", overrides], root, env
    )
    run = partial(wall_s, [str(BIN / "grpoflow"), "run", overrides], root, env)
    planned = partial(wall_s, [str(BIN / "grpoflow"), "plan", overrides], root, env)
    figures = []
    dvc_ratio = run_ratio = snakemake_ratio = None
    if dvc:
        peer = _dvc_project(root / "dvc", plan, dvc)
        actual, typed, reference = paired_medians(RUNS, by_luigi, run, peer)
        dvc_ratio, run_ratio = actual / reference, typed / reference
        figures += [Figure("noop_s", actual, "s"), Figure("noop_run_s", typed, "s")]
        figures += [Figure("noop_dvc_s", reference, "s")]
    if snakemake:
        peer = _snakemake_project(root / "snakemake", plan, snakemake)
        actual, reference = paired_medians(RUNS, planned, peer)
        snakemake_ratio = actual / reference
        figures += [Figure("plan_s", actual, "s"), Figure("plan_snakemake_s", reference, "s")]
    sweep_s = wall_s([str(BIN / "grpoflow"), "sweep", "--plan", overrides, *GRID], root, env)
    return [
        at_most("sweep_plan_s", sweep_s, SWEEP_PLAN_TARGET_S, "s"),
        at_most("noop_dvc_ratio", dvc_ratio, DVC_TARGET),
        at_most("noop_run_dvc_ratio", run_ratio, DVC_TARGET),
        at_most("plan_snakemake_ratio", snakemake_ratio, SNAKEMAKE_TARGET),
        *figures,
    ]


def _dvc_project(root: Path, plan: Plan, dvc: str) -> partial[float]:
    """Write the graph as DVC stages and reproduce it once; return a function that measures `dvc repro`."""
    root.mkdir()
    env = {"DVC_NO_ANALYTICS": "1"}
    wall_s([dvc, "init", "--no-scm", "-q"], root, env)
    stages = []
    for spec in plan.specs:
        dependencies = dict.fromkeys(key.stage for key in spec.inputs.values())
        inputs = "".join(f"\n      - {name}.out" for name in dependencies)
        stages.append(
            f"  {spec.name}:\n    cmd: echo {spec.name} > {spec.name}.out\n"
            + (f"    deps:{inputs}\n" if inputs else "")
            + f"    outs:\n      - {spec.name}.out\n"
        )
    (root / "dvc.yaml").write_text("stages:\n" + "".join(stages), encoding="utf-8")
    wall_s([dvc, "repro", "-q"], root, env)
    return partial(wall_s, [dvc, "repro", "-q"], root, env)


def _snakemake_project(root: Path, plan: Plan, snakemake: str) -> partial[float]:
    """Write the graph as Snakemake rules and run it once; return a function that measures a dry run."""
    root.mkdir()
    rules = ["rule all:\n    input: " + ", ".join(f'"{spec.name}.out"' for spec in plan.specs)]
    for spec in plan.specs:
        inputs = ", ".join(
            f'"{name}.out"' for name in dict.fromkeys(key.stage for key in spec.inputs.values())
        )
        rules.append(
            f"rule {spec.name}:\n"
            + (f"    input: {inputs}\n" if inputs else "")
            + f'    output: "{spec.name}.out"\n    shell: "echo {spec.name} > {{output}}"'
        )
    (root / "Snakefile").write_text("\n\n".join(rules) + "\n", encoding="utf-8")
    env = {"XDG_CACHE_HOME": str(root / "cache"), "PATH": f"{Path(snakemake).parent}:{os.environ['PATH']}"}
    wall_s([snakemake, "--cores", "1", "-q"], root, env)
    return partial(wall_s, [snakemake, "--cores", "1", "-n", "-q"], root, env)
