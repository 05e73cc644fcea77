"""Runs of engine=mindrlhf around a stand-in checkout (tests/data/mindrlhf_standin)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.e2e import outside
from tests.e2e.conftest import Finished, luigi, run_plain
from tests.e2e.outside import standin
from tests.processes import wait_until

HOME = outside.DATA / "mindrlhf_standin"
BASE = [
    *outside.BASE,
    "engine=mindrlhf",
    f"engine.mindrlhf_home={HOME / 'e8a8fc1'}",
    "train.checkpoint_every=2",
]


def run(store: Path, *overrides: str) -> Finished:
    return run_plain(store, *BASE, *overrides)


def rows(store: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return outside.rows(store, "grpo", name)


def hanging(store: Path) -> int:
    """Return the number of workers that have reached step 7."""
    return sum(
        "step: 7 start" in log.read_text() for log in store.glob(".logs/grpo-*/attempt_*/worker_*.log")
    )


def begin(store: Path, *overrides: str) -> subprocess.Popen[str]:
    """Start a run whose workers hang at step 7."""
    command = luigi(store, *BASE, *overrides, standin("hang@7"))
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=store.parent
    )


def wait_for_hanging(first: subprocess.Popen[str], store: Path, workers: int) -> None:
    """Wait until all workers hang; fail if the run ends before."""
    wait_until(lambda: hanging(store) >= workers, 240, first, lambda: first.communicate(timeout=30)[1])
