"""Tests of --until, --only and --force."""

import json

import pytest

from pipeline.cli import main
from pipeline.errors import ConfigError, StageFailed
from pipeline.plan.target import Target
from pipeline.run import build as building
from pipeline.run.run import Run, first_digest, prepare_plan
from pipeline.store import history
from pipeline.store.store import Store
from stages.base.graph import Stage
from tests.pipeline.artifacts import commit_spec

GRAPH = [
    Stage("fetch", ()),
    Stage("data", ()),
    Stage("strategy", (), skipped="no layout"),
    Stage("tokenize", (), {"a": "fetch", "b": "data"}),
    Stage("split", (), {"a": "fetch"}),
    Stage("grpo", (), {"weights": "split", "data": "tokenize"}),
]


@pytest.fixture(autouse=True)
def fresh():
    """Clear the caches of earlier runs in this process, and again whenever it is called."""

    def renew():
        first_digest.cache_clear()

    renew()
    return renew


@pytest.mark.parametrize(
    ("target", "stages"),
    [
        (Target(), "fetch data tokenize split grpo"),
        (Target("split"), "fetch data tokenize split"),
        (Target(only=("split",)), "fetch split"),
        (Target(only=("split", "data")), "fetch data split"),
        (Target("tokenize", force=("fetch",)), "fetch data tokenize"),
    ],
)
def test_until_follows_the_order_and_only_the_inputs(target, stages):
    assert target.requested(GRAPH) == set(stages.split())


@pytest.mark.parametrize(
    ("target", "option", "stage"),
    [
        (Target("spilt"), "--until", "spilt"),
        (Target("strategy"), "--until", "strategy"),
        (Target("split", ("grpo",)), "--until", "split"),
        (Target("split", force=("grpo",)), "--force", "grpo"),
        (Target(only=("split",), force=("data",)), "--force", "data"),
    ],
)
def test_unknown_skipped_and_contradictory_stages_are_refused(target, option, stage):
    with pytest.raises(ConfigError) as error:
        target.requested(GRAPH)
    (problem,) = error.value.problems
    assert (problem.path, problem.value) == (option, stage) and problem.remedy


def made(store, *overrides, target=None):
    """Commit an artifact for each incomplete stage of a plan."""
    planned, _ = prepare_plan([f"store={store.root}", *overrides], target=target)
    for spec in planned.specs:
        if store.problem(spec.key) is not None:
            rows = {"files": {name: {"records": 9_999} for name in ("train", "sft")}}
            commit_spec(store, spec, {"result.json": json.dumps(rows)} if spec.name == "tokenize" else {})


def rows(capsys, *arguments):
    main(["plan", "--json", *arguments])
    stages = json.loads(capsys.readouterr().out)["stages"]
    return {row["stage"]: (row["state"], row["reason"]) for row in stages}


def test_a_plan_has_only_the_requested_stages(tmp_path, capsys):
    store = f"store={tmp_path}"
    assert list(rows(capsys, "--only", "tokenize", store)) == ["fetch", "fetch_dataset", "tokenize"]
    assert list(rows(capsys, "--until", "convert", store)) == ["fetch", "fetch_dataset", "convert"]
    made(Store(tmp_path))
    assert main(["plan", "--until", "split", store]) == 0
    assert main(["plan", "--until", "sft", "sft.enabled=false", store]) == 2


def test_plan_shows_forced_stages_and_everything_downstream_as_rebuilt(tmp_path, capsys):
    store = Store(tmp_path)
    made(store)
    shown = rows(capsys, "--force", "grpo", f"store={tmp_path}")
    rebuilt = {name for name, row in shown.items() if row == ("RUN", "rebuilt (--force)")}
    assert rebuilt == {"grpo", "evaluate", "export", "report"}
    cached = {name for name, (state, _) in shown.items() if state == "CACHED"}
    assert cached == {"fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split", "sft"}
    assert main(["plan", f"store={tmp_path}"]) == 0  # planning rebuilds nothing


def run(tmp_path, *arguments):
    return main(["run", *arguments, f"store={tmp_path}"])


def test_a_rebuilt_artifact_moves_the_earlier_artifact_to_quarantine(tmp_path, capsys, fresh):
    assert run(tmp_path, "--only", "strategy") == 0
    (first,) = history.runs(tmp_path).values()
    artifact = tmp_path / first.artifact("strategy")
    assert capsys.readouterr().out.endswith(f"\ndone run={first.id} strategy={artifact}\n")
    manifest = (artifact / "manifest.json").read_bytes()
    fresh()
    assert run(tmp_path, "--only", "strategy", "--force", "strategy") == 0
    second = history.find(tmp_path, "last")
    assert second.artifact("strategy") == first.artifact("strategy")
    assert (artifact / "manifest.json").read_bytes() != manifest
    (moved,) = (tmp_path / ".quarantine").iterdir()
    assert (moved / "manifest.json").read_bytes() == manifest
    assert main(["plan", "--only", "strategy", f"store={tmp_path}"]) == 0


def test_stages_that_a_rebuild_leaves_out_are_named(tmp_path, capsys, fresh):
    made(Store(tmp_path))
    assert run(tmp_path, "--only", "strategy", "--force", "strategy") == 0
    note = "note: split, sft, grpo, evaluate, export, report: built from the replaced artifact of strategy"
    assert f"{note}; rebuild with --force split\n" in capsys.readouterr().err


def test_a_rebuild_that_fails_loses_nothing(tmp_path, monkeypatch, fresh):
    store, overrides = Store(tmp_path), [f"store={tmp_path}"]
    made(store)
    before, _ = prepare_plan(overrides)

    def fails(*_):
        raise StageFailed("strategy", "exit code 1", tmp_path / "log", [])

    monkeypatch.setattr(building, "build", fails)
    monkeypatch.setattr("launch.machine.environment.problems", list)
    planned, _ = prepare_plan(overrides, target=Target(force=("strategy",)))
    with pytest.raises(StageFailed):
        Run(planned, store, overrides).build("strategy")
    after, _ = prepare_plan(overrides)
    assert after.specs == before.specs and all(store.problem(spec.key) is None for spec in after.specs)
