"""Training goes on from the last step of a finished run, and of a training that was asked to stop."""

import json
import os
import shutil
import signal
import subprocess

import psutil
import pytest

from pipeline.plan import resume
from pipeline.run.run import prepare_plan
from tests.e2e.conftest import CHEAP, damage, luigi, run, run_plain
from tests.processes import living, wait_until


def rows(store, steps):
    """Return the metrics of the run with so many steps."""
    for file in store.glob("grpo/*/result.json"):
        if json.loads(file.read_text())["steps"] == steps:
            lines = file.with_name("metrics.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]
    raise AssertionError("no such run")


@pytest.mark.long
def test_a_finished_run_is_extended_as_if_it_had_been_longer(copy, tmp_path):
    other, constant = tmp_path / "other", "train.schedule=constant"
    shutil.copytree(copy, other, symlinks=True)
    run_plain(copy, *CHEAP, constant, "train.steps=2", task="Grpo", code=0)
    (note,) = resume.notes(*prepare_plan([*CHEAP, f"store={copy}", constant, "train.steps=5"]))
    override = note.partition("step 1: ")[2].partition(" (")[0]
    assert override.endswith("/step_000002")
    done = run(copy, constant, "train.steps=5", override)
    assert done.started == ["grpo", "evaluate", "export", "report"] and not damage(copy)
    run_plain(other, *CHEAP, constant, "train.steps=5", task="Grpo", code=0)
    extended, whole = rows(copy, 5), rows(other, 5)[2:]
    assert [row["step"] for row in extended] == [3, 4, 5]
    for key in ("reward", "loss", "grad_norm", "lr", "kl"):
        assert [row[key] for row in extended] == pytest.approx([row[key] for row in whole], rel=1e-4), key


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.long)])
def test_a_training_that_is_asked_to_stop_saves_its_last_step(copy, number):
    """Both workers stop after the same step, although one alone may get the signal."""
    steps = ["train.steps=400", "train.checkpoint_every=100000", "launcher.grace_s=120"]
    process = subprocess.Popen(
        luigi(copy, *CHEAP, *steps, task="Grpo"), cwd=copy.parent, stderr=subprocess.PIPE, text=True
    )

    def logged():
        files = [*copy.glob(".work/grpo-*/metrics.jsonl")]
        return files[0].read_text().count("\n") if files else 0

    wait_until(lambda: logged() >= 2, 400, process)
    if number == signal.SIGTERM:  # to grpoflow, which passes it on to all workers
        process.send_signal(number)
        code = 143
    else:
        one = next(pid for pid in living(copy) if is_worker(pid, "1"))
        os.kill(one, number)
        code = 1
    _, errors = process.communicate(timeout=400)
    assert process.returncode == code, errors
    (state,) = copy.glob(".work/grpo-*/checkpoints/step_*/state.json")
    saved = json.loads(state.read_text())
    assert saved["step"] == logged() and saved["workers"] == 2
    logs = "".join(path.read_text() for path in copy.glob(".logs/grpo-*/worker_*.log"))
    assert f"after step {saved['step']}, with a checkpoint" in logs
    plan, store = prepare_plan([*CHEAP, *steps, f"store={copy}"])
    assert resume.notes(plan, store) == [
        f"grpo resumes after step {saved['step']} of its interrupted attempt"
    ]


def is_worker(pid, rank):
    """Return True if a process is the worker of a rank under msrun."""
    environment = psutil.Process(pid).environ()
    return environment.get("MS_ROLE") == "MS_WORKER" and environment.get("RANK_ID") == rank
