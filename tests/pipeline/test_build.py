"""What an artifact is checked for before it is built and before it is committed."""

from pathlib import Path

import pytest

from pipeline.errors import StageFailed
from pipeline.plan.explain import explain
from pipeline.run.build import build
from pipeline.run.progress import Display
from pipeline.run.run import prepare_plan
from pipeline.store.attempt import attempt
from pipeline.store.verify import verify
from tests.pipeline.artifacts import manifest_of, replace_stages

ROW = '{"question": "1+1?", "answer": "#### 2"}\n'
FILES = ("train.jsonl", "test.jsonl", "result.json")


@pytest.fixture
def data(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text(ROW)
    return tmp_path


@pytest.fixture
def stage(monkeypatch):
    """Let every stage write the files of fetch_dataset, and call a function with its spec and logs."""

    def replace(change):
        def work(spec, logs):
            for name in FILES:
                (Path(spec["output"]) / name).write_text(ROW)
            change(spec, logs)

        replace_stages(monkeypatch, work)

    return replace


def planned(data):
    plan, store = prepare_plan(["dataset=gsm8k", f"dataset.path={data}", f"store={data / 'store'}"])
    spec = plan.spec("fetch_dataset")
    return plan, store, spec, lambda: build(spec, store, plan.config.launcher, Display(), "")


@pytest.mark.parametrize("text", [ROW * 2, None])
def test_file_changed_after_planning_is_not_read(data, text):
    _, store, _, build_it = planned(data)
    (data / "train.jsonl").write_text(text) if text else (data / "train.jsonl").unlink()
    with pytest.raises(StageFailed, match=r"train\.jsonl has been changed, or is gone, since this run"):
        build_it()
    assert not list(store.root.glob("fetch_dataset/*"))


def test_file_changed_while_it_is_read_prevents_the_commit(data, stage):
    _, store, _, build_it = planned(data)
    stage(lambda *_: (data / "test.jsonl").write_text(ROW * 2))
    with pytest.raises(StageFailed, match=r"test\.jsonl has been changed"):
        build_it()
    assert not list(store.root.glob("fetch_dataset/*"))
    _, store, spec, build_it = planned(data)
    stage(lambda *_: (data / "train.jsonl").touch())  # looked at again, and the same
    assert build_it() and store.problem(spec.key) is None


def test_stage_without_its_result_fails(data, stage):
    _, store, spec, build_it = planned(data)

    def incomplete(spec, logs):
        (Path(spec["output"]) / "result.json").unlink()
        (logs / "stage.log").write_text("my last words\n")
        (Path(spec["work"]) / "kept").touch()

    stage(incomplete)
    with pytest.raises(StageFailed, match=r"(?s)exit code 0, but without result\.json.*my last words"):
        build_it()
    assert store.problem(spec.key) == "never run"
    assert (store.work_dir(spec.key) / "kept").exists()  # what the next attempt continues from


def test_artifact_without_a_required_file_is_rebuilt(data, stage, monkeypatch):
    """Earlier versions committed a stage that exited with 0."""
    plan, store, spec, build_it = planned(data)
    with monkeypatch.context() as earlier, attempt(store, spec.key) as slot:
        earlier.setattr("pipeline.store.store.missing_file", lambda *results: None)
        (slot.staging / "train.jsonl").write_text(ROW)
        store.commit(slot.staging, manifest_of(spec.key, config=dict(spec.config)))
        slot.done()
    (finding,) = verify(store, deep=False)
    assert finding.problem == "output missing: the stage ended without result.json"
    row = next(row for row in explain(plan, store) if row.stage == "fetch_dataset")
    assert (row.state, row.reason) == ("RUN", finding.problem)
    stage(lambda *_: None)
    assert build_it() and list(verify(store, deep=True)) == []
