"""A finished run is extended: training continues with the optimizer's state of its last step."""

import json
import shutil

import pytest

from pipeline.plan import resume
from pipeline.run.run import prepare_plan
from tests.e2e.conftest import CHEAP, damage, run, run_plain


def rows(store, steps):
    """Return the metrics of the run with so many steps."""
    for file in store.glob("grpo/*/result.json"):
        if json.loads(file.read_text())["steps"] == steps:
            lines = file.with_name("metrics.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]
    raise AssertionError("no such run")


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
