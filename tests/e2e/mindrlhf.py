"""Runs of engine=mindrlhf around a stand-in checkout (tests/data/mindrlhf_standin)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from launch.process import JOB_VARIABLE
from tests.e2e.conftest import CHEAP, Finished, luigi, run_plain

HOME = Path(__file__).parents[1] / "data" / "mindrlhf_standin"
STEPS = 12  # 96 prompts, 8 a step
BASE = [
    *[override for override in CHEAP if not override.startswith(("sft.", "train."))],
    "engine=mindrlhf",
    f"engine.mindrlhf_home={HOME / 'e8a8fc1'}",
    f"engine.python={sys.executable}",
    "engine.use_vllm=0",
    "layout=dp1_mp2_pp1",
    "train.prompts_per_step=8",
    "train.checkpoint_every=2",
]


def run(store: Path, *overrides: str) -> Finished:
    return run_plain(store, *BASE, *overrides)


def standin(fault: str) -> str:
    return f"+engine.env.STANDIN='{fault}'"


def artifact(store: Path, stage: str) -> Path:
    (path,) = (store / stage).glob("[0-9a-f]*")
    return path


def rows(store: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (artifact(store, "grpo") / name).read_text().splitlines()]


def weights_moved(store: Path, export: Path | None = None) -> set[float]:
    """By how many of the stand-in's steps each weight of the exported model differs from the fetched one."""
    from stages.weights.tensors import load

    before, after = load(artifact(store, "fetch")), load(export or artifact(store, "export"))
    assert before.keys() == after.keys()
    moved = np.concatenate([((after[name] - before[name]) * 2**10).ravel() for name in before])
    return set(np.round(moved, 2).tolist())


def living(store: Path) -> list[int]:
    """Processes that belong to a run of this store."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(JOB_VARIABLE, "").startswith(str(store)):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def hanging(store: Path) -> int:
    """Workers that have come to step 7."""
    return sum(
        "step: 7 start" in log.read_text() for log in store.glob(".logs/grpo-*/attempt_*/worker_*.log")
    )


def begin(store: Path, *overrides: str) -> subprocess.Popen[str]:
    """Type it and do not wait; the workers hang at step 7."""
    command = luigi(store, *BASE, *overrides, standin("hang@7"))
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=store.parent
    )


def wait_for_hanging(first: subprocess.Popen[str], store: Path, workers: int) -> None:
    """Until all have come so far; fails at once when the run has ended instead."""
    deadline = time.monotonic() + 240
    while hanging(store) < workers:
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < deadline, first.args
        time.sleep(0.1)
