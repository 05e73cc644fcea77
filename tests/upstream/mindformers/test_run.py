"""`grpoflow run engine.sft=mindformers` with run_mindformer.py itself on a CPU: trained, killed, resumed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from stages.engines.mindformers import checkpoints
from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindformers.stage import FINISHED, PART
from stages.weights.tensors import load
from tests.e2e.outside import artifact, result, rows
from tests.processes import living
from tests.upstream.programs import kill_when

pytestmark = [pytest.mark.upstream, pytest.mark.long, pytest.mark.timeout(1800)]
TIMEOUT_S = 1500.0
KILLED_AFTER = 2
"""Steps whose checkpoint is complete when the run is killed."""
SIZE = (
    "layout=dp1_mp1_pp1", "model.hidden_size=64", "model.intermediate_size=128", "dataset.train_rows=64",
    "dataset.test_rows=8", "tokenize.sft_length=128", "mindformers.epochs=1", "mindformers.batch_size=8",
    "mindformers.learning_rate=1e-3", "mindformers.warmup_steps=1", "mindformers.checkpoint_every=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def command(checkout, interpreter, tmp_path_factory):
    """The command line of a run in a store."""
    script = tmp_path_factory.mktemp("shim") / "answers.json"
    variables = [f"+mindformers.env.{name}='{value}'" for name, value in shim.environment(script, {}).items()]
    program = [
        "engine.sft=mindformers",
        f"mindformers.home={checkout('mindformers-051d65f')}",
        f"mindformers.python={interpreter('mindspore')}",
    ]

    def line(store):
        run = [sys.executable, "-m", "pipeline.cli", "run", "--until", "sft", f"store={store}"]
        return [*run, *program, *SIZE, *variables]

    return line


@pytest.fixture(scope="module")
def uninterrupted(command, tmp_path_factory):
    """The store of a run that nothing stopped."""
    store = tmp_path_factory.mktemp("uninterrupted") / "store"
    finish(command(store), store)
    return store


def finish(line, store):
    done = subprocess.run(line, capture_output=True, text=True, cwd=store.parent, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert not living(store)


def log(store):
    """Worker 0's log of the last attempt."""
    return max(store.glob(".logs/sft-*/attempt_*/worker_0.log")).read_text(errors="replace")


def test_run_mindformer_trains(uninterrupted):
    """The evidence is what run_mindformer.py leaves: its log, its steps, and weights that moved."""
    assert FINISHED in log(uninterrupted)
    steps = rows(uninterrupted, "sft")
    assert len(steps) == result(uninterrupted, "sft")["steps"] > KILLED_AFTER + 1
    assert all(np.isfinite(row["loss"]) and row["grad_norm"] > 0 for row in steps)
    assert steps[-1]["loss"] < steps[0]["loss"]
    before, after = load(artifact(uninterrupted, "fetch")), load(artifact(uninterrupted, "sft"))
    assert before.keys() == after.keys()
    assert all(not np.array_equal(before[name], after[name]) for name in before)


def test_a_killed_run_repeats_the_losses_of_an_uninterrupted_run(command, uninterrupted, tmp_path):
    store = tmp_path / "store"
    kill_when(lambda: any(saved.step >= KILLED_AFTER for saved in complete(store)), command(store), store)
    saved = complete(store)[-1]
    finish(command(store), store)
    assert result(store, "sft")["resumed_from"] == [saved.epoch, saved.step]
    resumed, expected = rows(store, "sft"), rows(uninterrupted, "sft")
    assert [row["step"] for row in resumed] == [row["step"] for row in expected]
    for key in ("loss", "lr", "grad_norm"):
        assert [row[key] for row in resumed] == pytest.approx([row[key] for row in expected], rel=1e-3)
    actual, reference = load(artifact(store, "sft")), load(artifact(uninterrupted, "sft"))
    for name, value in reference.items():
        np.testing.assert_allclose(actual[name], value, atol=1e-5, err_msg=name)


def complete(store):
    """Moments of which every file is complete."""
    saved = [checkpoints.moments(work / "output", PART, 1) for work in store.glob(".work/sft-*")]
    return saved[0] if saved else []


def test_the_one_card_recipe_trains_on_alpaca(checkout, interpreter, tmp_path):
    """Recipe, shrunk: the model, the length of rows and the rate, with which a few updates show an effect."""
    examples = tmp_path / "alpaca_data.json"
    rows_ = [
        {
            "instruction": f"Add {n} and 1.",
            "input": "" if n % 2 else "Show it.",
            "output": f"{n} + 1 = {n + 1}",
        }
        for n in range(48)
    ]
    examples.write_text(json.dumps(rows_), encoding="utf-8")
    store, script = tmp_path / "store", tmp_path / "answers.json"
    variables = [f"+mindformers.env.{name}='{value}'" for name, value in shim.environment(script, {}).items()]
    run = [
        sys.executable, "-m", "pipeline.cli", "run", f"store={store}", "experiment=sft_qwen2_5_0_5b",
        "model=tiny", "model.hidden_size=64", "model.intermediate_size=128", f"dataset.path={examples}",
        "tokenize.sft_length=128", "mindformers.epochs=1", "mindformers.learning_rate=1e-3",
        "mindformers.batch_size=8", f"engine.mindformers_home={checkout('mindformers-051d65f')}",
        f"engine.python={interpreter('mindspore')}",
    ]  # fmt: skip
    finish([*run, *variables], store)
    steps = rows(store, "sft")
    assert FINISHED in log(store) and len(steps) == 6
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert (artifact(store, "report") / "index.html").is_file()
    assert {file.name for file in artifact(store, "sft").glob("*")} >= {"config.json", "tokenizer.json"}
