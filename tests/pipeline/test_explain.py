import shutil
from dataclasses import replace

from pipeline.config.load import load
from pipeline.plan.explain import explain
from pipeline.plan.graph import plan
from pipeline.plan.process import disk_shortage
from pipeline.run.run import Run, prepare_plan
from pipeline.store.store import Store
from stages.base.files import file_digest
from tests.pipeline.artifacts import commit_spec


def planned(*overrides):
    return plan(load(overrides), file_digest)


def commit(spec, store):
    commit_spec(store, spec, {"file": spec.name}, started=100.0, ended=107.5)


def rows(plan, store):
    return {row.stage: row for row in explain(plan, store)}


def test_reasons_name_the_key_that_changed(tmp_path):
    store = Store(tmp_path)
    for spec in planned().specs:
        commit(spec, store)
    assert {row.state for row in rows(planned(), store).values()} == {"CACHED"}
    explained = rows(planned("train.beta=0.5"), store)
    assert explained["sft"].state == "CACHED"
    old = load([]).train.beta
    assert explained["grpo"].reason == f"train.beta {old} → 0.5"
    assert explained["grpo"].last_duration_s == 7.5
    assert explained["evaluate"].reason.startswith("input changed: ")


def test_the_nearest_of_several_earlier_artifacts_explains(tmp_path):
    store = Store(tmp_path)
    for overrides in (["train.beta=0.1", "train.steps=7"], ["train.beta=0.2"]):
        for spec in planned(*overrides).specs:
            commit(spec, store)
    assert rows(planned("train.beta=0.3"), store)["grpo"].reason == "train.beta 0.2 → 0.3"


def test_a_new_code_version_is_a_reason(tmp_path):
    store, current = Store(tmp_path), planned()
    fetch = current.spec("fetch")
    commit(replace(fetch, version=0, key=replace(fetch.key, fingerprint="00" * 32)), store)
    assert rows(current, store)["fetch"].reason == "code version 0 → 1"


def test_damage_is_a_reason(tmp_path):
    store, current = Store(tmp_path), planned()
    for spec in current.specs:
        commit(spec, store)
    (store.path(current.spec("split").key) / "file").unlink()
    explained = rows(current, store)
    assert explained["split"].reason == "output missing: file"
    assert [name for name, row in explained.items() if row.state == "RUN"] == ["split"]


def test_a_full_disk_blocks_a_stage_and_everything_downstream(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    needed = planned().spec("split").stage.bytes_written
    assert needed is not None and needed >= planned().config.model.weight_bytes
    store = Store(tmp_path)
    commit(planned().spec("fetch"), store)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed - 1))
    explained = rows(planned(), store)
    assert explained["tokenize"].state == "RUN"
    assert explained["split"].state == "BLOCKED"
    assert "free space, or choose another store" in explained["split"].reason
    assert explained["sft"].reason == "input blocked: split"


def test_files_of_an_interrupted_attempt_need_no_more_space(tmp_path, monkeypatch):
    usage, store, spec = shutil.disk_usage(tmp_path), Store(tmp_path), planned().spec("grpo")
    needed = spec.stage.bytes_written
    assert needed is not None
    checkpoint = store.work_dir(spec.key) / "checkpoints" / "step_000010"
    checkpoint.mkdir(parents=True)
    with (checkpoint / "weights").open("wb") as file:
        file.truncate(needed // 2)
    for free, is_short in ((needed, False), (needed - needed // 2, False), (needed // 4, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert (disk_shortage(spec, store) is not None) == is_short


def test_a_run_warns_at_its_start_of_a_stage_that_will_not_fit(tmp_path, monkeypatch, capsys):
    overrides = [f"store={tmp_path}"]
    result, store = prepare_plan(overrides)
    usage, needed = shutil.disk_usage(tmp_path), result.spec("grpo").stage.bytes_written
    assert needed is not None
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed - 1))
    Run(result, store, overrides)
    assert f"warning: {tmp_path}: " in capsys.readouterr().err
