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
from stages.base.files import file_digest
from tests.pipeline.artifacts import complete, manifest_of, replace_stages, required

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
    """Another program may have committed it, for example to a shared remote."""
    plan, store, spec, build_it = planned(data)
    with monkeypatch.context() as earlier, attempt(store, spec.key) as slot:
        earlier.setattr("pipeline.store.store.missing_file", lambda *results: None)
        (slot.staging / "train.jsonl").write_text(ROW)
        store.commit(slot.staging, manifest_of(spec.key, required=spec.required))
        slot.done()
    (finding,) = verify(store, deep=False)
    assert finding.problem == "output missing: the stage ended without result.json"
    row = next(row for row in explain(plan, store) if row.stage == "fetch_dataset")
    assert (row.state, row.reason) == ("RUN", finding.problem)
    stage(lambda *_: None)
    assert build_it() and list(verify(store, deep=True)) == []


REWARDED = ["reward.functions=[mine:f]", "reward.weights=[1.0]", "reward.files=[table.json]"]


@pytest.mark.parametrize("name", ["grpo", "evaluate"])
@pytest.mark.parametrize("changed", ["mine.py", "helper.py", "table.json"])
def test_a_reward_changed_during_training_prevents_the_commit(name, changed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = {"mine.py": "import helper\ndef f(c, s): return [0.0]\n", "helper.py": "", "table.json": "{}"}
    for file, source in sources.items():
        (tmp_path / file).write_text(source)
    overrides = [f"store={tmp_path / 'store'}", "sft.enabled=false", *REWARDED]
    before = [spec.name for spec in prepare_plan(overrides)[0].specs]
    plan, store = complete(overrides, *before[: before.index(name)])
    spec = plan.spec(name)
    seen = []

    def work(values, logs):
        seen.append(values["code"])
        for file, content in required(spec.required).items():
            target = Path(values["output"]) / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        if len(seen) == 1:
            (tmp_path / changed).write_text(sources[changed] + " ")

    replace_stages(monkeypatch, work)
    with pytest.raises(StageFailed, match=rf"{changed} has been changed, .*; restore it to continue"):
        build(spec, store, plan.config.launcher, Display())
    assert store.problem(spec.key) is not None
    (tmp_path / changed).write_text(sources[changed])
    assert build(spec, store, plan.config.launcher, Display())
    digests = {module: digest for module, (_, digest) in seen[0].items()}
    assert digests == {name: file_digest(tmp_path / f"{name}.py") for name in ("mine", "helper")}
