"""A wheel without extras, in an environment of its own: the orchestrator without MindSpore."""

import json

import pytest

from tests.e2e import wheel

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

VERL = ["engine=verl", "engine.device=cpu", "layout=named", "model=tiny", "sft.enabled=false"]


@pytest.fixture(scope="module")
def grpoflow(tmp_path_factory):
    """Return a function that runs the command `grpoflow` of the installed wheel."""
    return wheel.install(tmp_path_factory.mktemp("wheel"))


def test_engine_verl_needs_no_extra(grpoflow, tmp_path):
    rows = [{"q": f"{first} plus 1?", "a": f"#### {first + 1}"} for first in range(64)]
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = [f"dataset.path={data}", "dataset.columns.prompt=q", "dataset.columns.answer=a"]
    overrides = [
        *VERL,
        *own,
        "dataset.test_rows=8",
        "train.prompts_per_step=4",
        f"store={tmp_path / 'store'}",
    ]
    planned = grpoflow("plan", "--json", *overrides, code=10)
    states = {row["stage"]: row["state"] for row in json.loads(planned.stdout)["stages"]}
    assert states["grpo"] == states["export"] == states["report"] == "RUN"
    assert states["evaluate"] == "SKIPPED"  # it computes with MindSpore
    grpoflow("run", "--until", "tokenize", *overrides)
    (tokenized,) = (tmp_path / "store" / "tokenize").glob("*/manifest.json")
    manifest = json.loads(tokenized.read_text())
    assert {"train.parquet", "test.mindrecord"} <= {file.name for file in tokenized.parent.iterdir()}
    assert "mindspore" not in manifest["versions"]


def test_engine_local_is_refused_with_the_command_that_installs_it(grpoflow, tmp_path):
    for command in ("plan", "run"):
        refused = grpoflow(command, f"store={tmp_path / 'store'}", code=2)
        assert "mindspore: not installed" in refused.stderr
        assert "pip install 'grpoflow[local]'" in refused.stderr
    assert not (tmp_path / "store").exists()
