"""What an artifact is checked for before it is built and before it is committed."""

import pytest

from launch.process.child import Outcome
from pipeline.errors import StageFailed
from pipeline.plan.explain import explain
from pipeline.run import build as building
from pipeline.run.build import build
from pipeline.run.progress import Display
from pipeline.run.run import prepare_plan
from pipeline.store.attempt import attempt
from pipeline.store.verify import verify
from tests.pipeline.artifacts import manifest_of

ROW = '{"question": "1+1?", "answer": "#### 2"}\n'


@pytest.fixture
def data(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text(ROW)
    return tmp_path


def planned(data):
    plan, store = prepare_plan(["dataset=gsm8k", f"dataset.path={data}", f"store={data / 'store'}"])
    return plan.spec("fetch_dataset"), store


def built(spec, store):
    launcher = prepare_plan([f"store={store.root}"])[0].config.launcher
    return build(spec, store, launcher, Display(), "")


def test_file_changed_after_planning_is_not_read(data):
    spec, store = planned(data)
    (data / "train.jsonl").write_text(ROW * 2)
    with pytest.raises(StageFailed, match=r"train\.jsonl has been changed, or is gone, since this run"):
        built(spec, store)
    (data / "train.jsonl").unlink()
    with pytest.raises(StageFailed, match=r"train\.jsonl has been changed, or is gone, since this run"):
        built(spec, store)
    assert not list(store.root.glob("fetch_dataset/*"))


def test_file_changed_while_it_is_read_prevents_the_commit(data, monkeypatch):
    spec, store = planned(data)

    def stage(spec, store, slot, *ignored):
        (data / "test.jsonl").write_text(ROW * 2)
        return _quiet(spec, slot)

    monkeypatch.setattr(building, "_run", stage)
    with pytest.raises(StageFailed, match=r"test\.jsonl has been changed"):
        built(spec, store)
    assert not list(store.root.glob("fetch_dataset/*"))
    spec, store = planned(data)
    (data / "train.jsonl").touch()  # looked at again, and found to be the same
    monkeypatch.setattr(building, "_run", lambda spec, store, slot, *ignored: _quiet(spec, slot))
    assert built(spec, store) and store.problem(spec.key) is None


def _quiet(spec, slot):
    for name in ("train.jsonl", "test.jsonl", "result.json"):
        (slot.staging / name).write_text(ROW)
    return Outcome(0.0, 1.0, 0.0)


def test_stage_without_its_result_fails(data, monkeypatch):
    spec, store = planned(data)

    def stage(spec, store, slot, *ignored):
        outcome = _quiet(spec, slot)
        (slot.staging / "result.json").unlink()
        (slot.logs / "stage.log").write_text("my last words\n")
        (slot.work / "kept").touch()
        return outcome

    monkeypatch.setattr(building, "_run", stage)
    with pytest.raises(StageFailed, match=r"(?s)exit code 0, but without result\.json.*my last words"):
        built(spec, store)
    assert store.problem(spec.key) == "never run"
    assert (store.work_dir(spec.key) / "kept").exists()  # what the next attempt goes on from


def test_artifact_without_a_required_file_is_rebuilt(data, monkeypatch):
    """Committed by an earlier version, which looked at the exit code alone."""
    spec, store = planned(data)
    with monkeypatch.context() as careless:
        careless.setattr("pipeline.store.store.missing_file", lambda *results: None)
        with attempt(store, spec.key) as slot:
            (slot.staging / "train.jsonl").write_text(ROW)
            store.commit(slot.staging, manifest_of(spec.key, config=dict(spec.config)))
            slot.done()
        assert store.problem(spec.key) is None
    assert store.problem(spec.key) == "output missing: the stage ended without result.json"
    (finding,) = verify(store, deep=False)
    assert finding.problem == "output missing: the stage ended without result.json"
    plan, _ = prepare_plan(["dataset=gsm8k", f"dataset.path={data}", f"store={store.root}"])
    row = next(row for row in explain(plan, store) if row.stage == "fetch_dataset")
    assert (row.state, row.reason) == ("RUN", finding.problem)
    monkeypatch.setattr(building, "_run", lambda spec, store, slot, *ignored: _quiet(spec, slot))
    assert built(spec, store)
    assert list(verify(store, deep=True)) == []
