"""Templates of rendered files: what each form of a value becomes, and which fields are refused."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from stages.engines.template import ABSENT, Entry, entries, fill

TEMPLATE = """\
rl:
  beta: $train.beta
  steps: {value: $job.steps, key: train.steps}
  load: {value: $paths.weights, fixed: it is the start}
  graph: $derived.graph
  rate: {value: $derived.rate, key: train.rate}
  schedule: cosine
  file: ${paths.weights}/of ${train.beta}
  top: {value: $train.top, default: $job.steps}
  size: {value: "${job.steps}GB", key: engine.size}
  rest: {value: $derived.rest, default: [1]}
  scale: {value: {type: fixed, names: [a]}, fixed: it must not change}
"""
JOB = SimpleNamespace(train=SimpleNamespace(beta=0.1, top=None), steps=3)
DERIVED = {"graph": 1, "rate": 2, "rest": 0}
PATHS = SimpleNamespace(weights=Path("/weights"))


@pytest.fixture
def template(tmp_path):
    file = tmp_path / "template.yaml"
    file.write_text(TEMPLATE)
    return file


def test_references_are_replaced_and_absent_values_are_left_out(template):
    content = fill(template, JOB, PATHS, {"graph": ("a", "b"), "rate": ABSENT, "rest": None})
    assert content == {
        "rl": {
            "beta": 0.1, "steps": 3, "load": "/weights", "graph": ["a", "b"], "schedule": "cosine",
            "file": "/weights/of 0.1", "top": 3, "size": "3GB", "rest": [1],
            "scale": {"type": "fixed", "names": ["a"]},
        }
    }  # fmt: skip


def test_fields_that_a_version_does_not_know_are_left_out(template):
    known = {"rl.beta", "rl.rate"}.__contains__
    assert fill(template, JOB, PATHS, DERIVED, known) == {"rl": {"beta": 0.1, "rate": 2}}
    with pytest.raises(AttributeError, match="rate"):
        fill(template, JOB, PATHS, {"graph": 1}, known)


def test_a_changed_result_does_not_change_later_results(template):
    first = fill(template, JOB, PATHS, DERIVED)
    first["rl"]["scale"]["names"].append("b")
    assert fill(template, JOB, PATHS, DERIVED)["rl"]["scale"]["names"] == ["a"]


def test_keys_of_grpoflow_and_reasons_belong_to_their_fields(template):
    listed = entries(template)
    limits = {name: entry.key or entry.fixed for name, entry in listed.items() if entry.key or entry.fixed}
    assert limits == {
        "rl.beta": "train.beta", "rl.steps": "train.steps", "rl.load": "it is the start",
        "rl.rate": "train.rate", "rl.top": "train.top", "rl.size": "engine.size",
        "rl.scale": "it must not change",
    }  # fmt: skip
    assert listed["rl.schedule"] == Entry("cosine")
