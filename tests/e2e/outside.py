"""Settings and checks for tests with stand-ins of outside programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import CHEAP, finish, luigi
from tests.processes import living, wait_until

DATA = Path(__file__).parents[1] / "data"
STEPS = 12  # 96 prompts, 8 a step
BASE = [
    *[override for override in CHEAP if not override.startswith(("sft.", "train."))],
    "model.num_hidden_layers=2",  # for pipelines of two stages
    f"engine.python={sys.executable}", "layout=dp1_mp2_pp1", "train.prompts_per_step=8",
]  # fmt: skip
MINDRLHF = [
    *BASE, "engine=mindrlhf", f"engine.mindrlhf_home={DATA / 'mindrlhf_standin' / 'e8a8fc1'}",
    "train.checkpoint_every=2",
]  # fmt: skip
SFT = [  # two epochs; tests choose the batch so that it takes as many steps as grpo
    "engine.sft=mindformers", f"mindformers.home={DATA / 'mindformers_standin'}",
    f"mindformers.python={sys.executable}", "mindformers.batch_size=16", "mindformers.checkpoint_every=2",
]  # fmt: skip


def artifact(store: Path, stage: str) -> Path:
    (path,) = (store / stage).glob("[0-9a-f]*")
    return path


def rows(store: Path, stage: str, name: str = "metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (artifact(store, stage) / name).read_text().splitlines()]


def result(store: Path, stage: str) -> dict:
    return json.loads((artifact(store, stage) / "result.json").read_text())


def weights_moved(
    store: Path, before: str = "fetch", after: str = "export", bits: bool = False
) -> set[float]:
    """Return by how many steps of the mock trainer, or units in the last place, each weight differs."""
    from stages.weights.tensors import load

    old, new = (load(artifact(store, stage)) for stage in (before, after))
    assert old.keys() == new.keys()
    moved = [
        new[name].view(np.int32) - old[name].view(np.int32) if bits else (new[name] - old[name]) * 2**10
        for name in old
    ]
    return {step for difference in moved for step in np.round(difference, 2).ravel().tolist()}


def standin(fault: str, section: str = "engine") -> str:
    """Return the override that lets a mock fail or hang."""
    return f"+{section}.env.STANDIN='{fault}'"


def surrounded(directory: Path, section: str = "engine") -> list[str]:
    """Return overrides that run a program in a `container` and source a script that logs its caller."""
    script = directory / "environment.sh"
    script.write_text(f'echo "$0 ${{CONTAINED:-no}}" >> {directory / "sourced"}\n')
    return [f"{section}.container=[env,'CONTAINED=yes']", f"{section}.env_scripts=[{script}]"]


def sourced(directory: Path) -> list[tuple[str, str]]:
    """Return the stage of each start script that has run, and if it ran in the container."""
    lines = [line.split() for line in (directory / "sourced").read_text().splitlines()]
    return [(Path(script).parents[1].name.partition("-")[0], inside) for script, inside in lines]


def dry_run(store: Path, *overrides: str) -> list[Path]:
    """Run `grpoflow run --render`; return the start scripts, and check that nothing is started."""
    arguments = [sys.executable, "-m", "pipeline.cli", "run", "--render", f"store={store}", *overrides]
    shown = finish(arguments, store.parent, code=0)
    assert not living(store)
    scripts = [Path(line) for line in shown.stdout.splitlines() if not line.startswith("note: ")]
    assert all(script.is_file() for script in scripts) and not list(store.glob(".logs/*/by_hand"))
    return scripts


def by_hand(script: Path, logs: Path) -> str:
    """Run a start script without grpoflow; return the log of worker 0."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(logs.parent), "LOG_DIR": str(logs)}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return (logs / "worker_0.log").read_text()


def begin(store: Path, *overrides: str) -> subprocess.Popen[str]:
    """Start a run."""
    line = luigi(store, *overrides)
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=store.parent)


def wait_for_workers(run: subprocess.Popen[str], store: Path, stage: str, text: str, workers: int) -> None:
    """Wait until the logs of `workers` workers contain a text; fail if the run ends before."""

    def reached() -> bool:
        logs = store.glob(f".logs/{stage}-*/attempt_*/worker_*.log")
        return sum(text in log.read_text() for log in logs) >= workers

    wait_until(reached, 240, run, lambda: run.communicate(timeout=30)[1])


def check_resumed(store: Path, step: int, worker: int = 0) -> None:
    """Check a run of MINDRLHF that was ended after the checkpoint of `step`, and repeated.

    The metrics are those of a worker of the last pipeline stage; the mock adds its rank to the loss.
    """
    assert not living(store)
    finished = result(store, "grpo")
    assert (finished["resumed_from"], finished["steps"]) == ([0, step], STEPS)
    metrics, steps = rows(store, "grpo"), range(1, STEPS + 1)
    assert [row["step"] for row in metrics] == list(steps)
    assert [row["loss"] for row in metrics] == pytest.approx([1 / step + worker for step in steps])
    assert weights_moved(store) == {float(STEPS)}
