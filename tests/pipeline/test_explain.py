"""Reasons in a plan, and disk space."""

import shutil
from dataclasses import replace

import pytest

from pipeline.config.load import load
from pipeline.plan.explain import explain
from pipeline.plan.process import disk_shortage
from pipeline.run.run import Run, prepare_plan
from pipeline.store.store import Store
from tests.pipeline.artifacts import commit_spec, complete
from tests.pipeline.plans import planned


@pytest.fixture
def store(tmp_path):
    """A store with the artifacts of two configurations."""
    for overrides in (["train.beta=0.1", "train.steps=7"], []):
        _, store = complete([f"store={tmp_path}", *overrides], started=100.0, ended=107.5)
    return store


def rows(plan, store):
    return {row.stage: row for row in explain(plan, store)}


def test_reasons_name_the_key_that_changed_since_the_nearest_artifact(store):
    assert {row.state for row in rows(planned(), store).values()} == {"CACHED"}
    explained = rows(planned("train.beta=0.5"), store)
    assert explained["sft"].state == "CACHED"
    assert explained["grpo"].reason == f"train.beta {load([]).train.beta} → 0.5"
    assert explained["grpo"].last_duration_s == 7.5
    assert explained["evaluate"].reason.startswith("input changed: ")


@pytest.mark.parametrize(
    ("metrics", "steps", "expected"),
    [
        ([], 14, 15.0), ([], 3, 22.5 / 7), ([], 7, 7.5),
        # 0.5 s a step after a start of 4 s; a checkpoint and a restart do not matter
        ([0, 0.5, 1, 1.5, 2, 2.5, 3], 14, 11.0), ([0, 0.5, 1, 9, 9.5, 10, 10.5], 2, 5.0),
        ([0, 0.5, 1], 14, 7.5),  # three steps were enough
        ([0, 0.5, 1], 2, 7.0),
        ([0], 14, 15.0), ([9, 8, 7, 6, 5, 4, 3], 14, 15.0),
    ],
)  # fmt: skip
def test_the_expected_duration_grows_with_the_steps(tmp_path, metrics, steps, expected):
    text = "".join(f'{{"step": {i}, "time_s": {9 + when}}}\n' for i, when in enumerate(metrics, start=1))
    seven = [f"store={tmp_path}", "train.steps=7"]
    _, store = complete(seven, files={"grpo": {"metrics.jsonl": text}}, started=100.0, ended=107.5)
    explained = rows(planned(f"train.steps={steps}"), store)
    assert explained["grpo"].last_duration_s == 7.5
    assert explained["grpo"].expected_s == pytest.approx(expected)
    assert explained["fetch"].expected_s == 7.5


def test_a_new_code_version_is_a_reason(tmp_path):
    store, fetch = Store(tmp_path), planned().spec("fetch")
    commit_spec(store, replace(fetch, version=0, key=replace(fetch.key, fingerprint="00" * 32)), {})
    assert rows(planned(), store)["fetch"].reason == "code version 0 → 1"


def test_the_shown_command_is_the_engines_own(store):
    row = rows(planned("experiment=verl_7b", "model.path=/models/qwen"), store)["tokenize"]
    assert row.command[1:4] == ["-m", "stages", "stages.engines.verl.tokenize:run"]


@pytest.fixture
def set_free_space(tmp_path, monkeypatch):
    """Set the free bytes of every disk."""
    usage = shutil.disk_usage(tmp_path)
    return lambda free: monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))


def test_a_skipped_stage_is_shown_with_the_reason(store, shown):
    lines = shown("plan", f"store={store.root}", "sft.enabled=false", code=10).out.split("\n")
    (skipped,) = (line for line in lines if "SKIPPED" in line)
    assert "sft.enabled=false: grpo starts from split" in skipped


def test_a_full_disk_blocks_a_stage_and_everything_downstream(tmp_path, set_free_space, capsys):
    result, store = prepare_plan([f"store={tmp_path}"])
    needed = result.spec("split").stage.bytes_written
    assert needed is not None and needed >= result.config.model.weight_bytes
    commit_spec(store, result.spec("fetch"), {})
    set_free_space(needed - 1)
    explained = rows(result, store)
    states = [explained[name].state for name in ("tokenize", "split", "sft")]
    assert states == ["RUN", "BLOCKED", "BLOCKED"] and explained["sft"].reason == "input blocked: split"
    Run(result, store, [])
    assert f"warning: {tmp_path}: " in capsys.readouterr().err


def test_files_of_an_interrupted_attempt_need_no_more_space(tmp_path, set_free_space):
    store, spec = Store(tmp_path), planned().spec("grpo")
    needed = spec.stage.bytes_written
    assert needed is not None
    checkpoint = store.work_dir(spec.key) / "checkpoints" / "step_000010"
    checkpoint.mkdir(parents=True)
    with (checkpoint / "weights").open("wb") as file:
        file.truncate(needed // 2)
    for free, is_short in ((needed - needed // 2, False), (needed // 4, True)):
        set_free_space(free)
        assert (disk_shortage(spec, store) is not None) == is_short
