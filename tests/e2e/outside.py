"""What tests of outside programs' stand-ins share: the settings, and what is looked at afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from launch.process import JOB_VARIABLE
from tests.e2e.conftest import CHEAP, luigi

DATA = Path(__file__).parents[1] / "data"
STEPS = 12  # 96 prompts, 8 a step
BASE = [
    *[override for override in CHEAP if not override.startswith(("sft.", "train."))],
    f"engine.python={sys.executable}",
    "layout=dp1_mp2_pp1",
    "train.prompts_per_step=8",
]
SFT = [  # twice; tests choose the batch so that it takes as many steps as grpo
    "engine.sft=mindformers",
    f"mindformers.home={DATA / 'mindformers_standin'}",
    f"mindformers.python={sys.executable}",
    "mindformers.batch_size=16",
    "mindformers.checkpoint_every=2",
]


def artifact(store: Path, stage: str) -> Path:
    (path,) = (store / stage).glob("[0-9a-f]*")
    return path


def rows(store: Path, stage: str, name: str = "metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (artifact(store, stage) / name).read_text().splitlines()]


def result(store: Path, stage: str) -> dict:
    return json.loads((artifact(store, stage) / "result.json").read_text())


def weights_moved(store: Path, before: str = "fetch", after: str = "export") -> set[float]:
    """By how many of the stand-ins' steps each weight of a Hugging Face directory differs from another's."""
    return moved(artifact(store, before), artifact(store, after))


def moved(before: Path, after: Path) -> set[float]:
    """The same of two directories."""
    from stages.weights.tensors import load

    old, new = load(before), load(after)
    assert old.keys() == new.keys()
    return set(
        np.round(np.concatenate([((new[name] - old[name]) * 2**10).ravel() for name in old]), 2).tolist()
    )


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


def kill_when(store: Path, overrides: list[str], stage: str, line: str, workers: int) -> None:
    """Begin a run, and kill its orchestrator as soon as so many workers of a stage have logged a line."""

    def reached() -> int:
        logs = store.glob(f".logs/{stage}-*/attempt_*/worker_*.log")
        return sum(line in log.read_text() for log in logs)

    run = subprocess.Popen(
        luigi(store, *overrides), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=store.parent
    )
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and reached() < workers and run.poll() is None:
        time.sleep(0.1)
    assert reached() == workers
    run.send_signal(signal.SIGKILL)
    run.wait()
