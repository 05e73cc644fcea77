"""Proofs of a rehearsal that the engines with PyTorch share: an additional reward, updates, two workers."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from launch.machine import checks
from stages.engines import small_run
from stages.engines.rehearsal import STEPS, Proof, positive, proof

TIMEOUT_S = 600.0
CLOSE = 1e-3
"""Largest relative difference between metrics of one and of two workers."""


def add_reward(scratch: Path) -> None:
    """Let this process and the stages' processes find the additional reward function."""
    (scratch / f"{small_run.REWARD}.py").write_text(small_run.REWARD_SOURCE, encoding="utf-8")
    sys.path.append(str(scratch))
    path = [os.environ.get("PYTHONPATH"), str(scratch)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))


def run_program(python: str | None, program: Path, *arguments: object) -> tuple[str, str]:
    """Run a program in an engine's interpreter; return its output, and the reason if it failed."""
    command = [str(part) for part in (checks.interpreter(python), program, *arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "", f"{program.name}: not finished after {TIMEOUT_S:.0f} s"
    last = [f"{program.name}: exit code {done.returncode}", *done.stderr.strip().splitlines()][-1]
    return done.stdout, last if done.returncode != 0 else ""


def trained(rows: list[dict[str, Any]]) -> Proof:
    """Check that rewards were computed and that the policy got a gradient."""
    norms = positive("", rows, "grad_norm")
    holds = len(rows) == STEPS and norms.state == "proven"
    rewards = ", ".join(f"{row.get('reward', math.nan):.3g}" for row in rows)
    return proof("rewards and updates", holds, f"mean rewards {rewards}; gradient norms {norms.told}")


def equal(single: list[dict[str, Any]], double: list[dict[str, Any]]) -> Proof:
    """Compare the first step's metrics of one worker and of two, which sample the same completions."""
    names = ("reward", "loss", "grad_norm")
    pairs = [(single[0].get(name, math.nan), double[0].get(name, math.nan)) for name in names]
    fine = all(math.isclose(first, second, rel_tol=CLOSE, abs_tol=1e-6) for first, second in pairs)
    values = ", ".join(f"{name} {a:.5g} and {b:.5g}" for name, (a, b) in zip(names, pairs, strict=True))
    return proof("two workers train like one", fine, values)
