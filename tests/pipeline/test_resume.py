"""Checkpoints from which a planned run can continue: they are named by plan, kept, verified and collected."""

import json
from pathlib import Path

import pytest

from pipeline.plan import resume
from pipeline.run.run import prepare_plan
from pipeline.store.attempt import FINAL_CHECKPOINTS, attempt
from pipeline.store.collect import collect
from pipeline.store.store import Store
from pipeline.store.verify import verify
from tests.pipeline.artifacts import commit_spec, flip, write_checkpoint

REWARD = ["reward.functions=[mine:f]", "reward.weights=[1]"]


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """Begin grpo with overrides, and leave checkpoints of steps in its work directory."""
    monkeypatch.chdir(tmp_path)

    def begin(overrides, *steps, final=None):
        plan, store = prepare_plan([f"store={tmp_path / 'store'}", *overrides])
        spec = plan.spec("grpo")
        with attempt(store, spec.key) as slot:
            inputs = {name: str(store.path(key)) for name, key in spec.inputs.items()}
            (slot.logs / "spec.json").write_text(json.dumps({"config": spec.config, "inputs": inputs}))
            for step in steps:
                write_checkpoint(slot.work / f"checkpoints/step_{step:06d}", step, bytes(64), "weights")
            if final is not None:
                write_checkpoint(slot.work / f"final/step_{final:06d}", final, bytes(64), "weights")
                slot.done()
                commit_spec(store, spec, {})
        return plan, store

    return begin


def noted(tmp_path, *overrides):
    return "\n".join(resume.notes(*prepare_plan([f"store={tmp_path / 'store'}", *overrides])))


def test_a_corrected_reward_can_continue_from_the_last_checkpoint(interrupted, tmp_path, shown):
    (tmp_path / "mine.py").write_text("def f(c, s):\n    return [1 / 0 for _ in c]\n")
    plan, store = interrupted(REWARD, 170, 180)
    assert "resumes after step 180 " in noted(tmp_path, *REWARD)
    path = store.work_dir(plan.spec("grpo").key) / "checkpoints/step_000180"
    assert f"train.resume_from={path}" in resume.after_failure(store, plan.spec("grpo"))
    (tmp_path / "mine.py").write_text("def f(c, s):\n    return [1.0 for _ in c]\n")
    note = noted(tmp_path, *REWARD, "train.steps=200")
    assert note.startswith("checkpoint step_000180 of attempt grpo-") and "train.steps 32 → 200" in note
    override = note.partition("step 1: ")[2].partition(" (")[0]
    assert override == f"train.resume_from={path}"
    planned, _ = prepare_plan([f"store={tmp_path / 'store'}", *REWARD, "train.steps=200", override])
    assert str(path / "state.json") in planned.spec("grpo").external
    assert override in shown("plan", f"store={tmp_path / 'store'}", *REWARD, "train.steps=200", code=10).out
    assert noted(tmp_path, *REWARD, "train.steps=200", override) == ""


@pytest.mark.parametrize(
    ("overrides", "is_usable"),
    [
        (["train.steps=100"], True),
        (["train.steps=100", "train.learning_rate=1e-5"], True),
        (["train.steps=100", "layout=dp2_mp1_pp1"], True),
        (["train.steps=79"], False),
        (["train.steps=100", "model.num_hidden_layers=1"], False),
        (["train.steps=100", "dataset.train_rows=512"], False),
        (["train.steps=100", "seed=3"], False),
        (["train.steps=100", "engine=verl", "model=qwen2_5_7b", "sft.enabled=false"], False),
    ],
)
def test_only_a_checkpoint_of_the_same_model_and_data_is_named(overrides, is_usable, interrupted, tmp_path):
    interrupted([], final=79)
    assert ("train.resume_from=" in noted(tmp_path, *overrides)) is is_usable


def test_a_checkpoint_in_use_or_with_missing_files_is_not_named(interrupted, tmp_path):
    plan, store = interrupted(["train.beta=0.5"], 10)
    assert "step_000010" in noted(tmp_path)
    with attempt(store, plan.spec("grpo").key) as slot:
        assert noted(tmp_path) == ""
    (slot.work / "checkpoints/step_000010/weights/rank_0/model.safetensors").unlink()
    assert noted(tmp_path) == ""


def test_the_final_checkpoint_is_verified_and_collected_with_its_artifact(interrupted, tmp_path):
    plan, store = interrupted([], final=80)
    key = plan.spec("grpo").key
    kept = store.root / FINAL_CHECKPOINTS / key.flat
    assert [path.name for path in kept.iterdir()] == ["step_000080"] and not store.work_dir(key).exists()
    from pipeline.store import history

    for run, artifacts in (("one", {"grpo": str(key)}), ("two", {"grpo": f"grpo/{'0' * 16}"})):
        history.record(store.root, run, "started", overrides=[], config={}, artifacts=artifacts)
    assert kept not in {item.path for item in collect(store, keep=2, delete=True)}
    (file,) = kept.rglob("model.safetensors")
    flip(file, 3)
    (finding,) = verify(Store(store.root), deep=True)
    assert finding.path == kept / "step_000080" and "checkpoint damaged" in finding.problem
    assert kept in {item.path for item in collect(store, keep=1, delete=True)} and not kept.exists()


def test_quotes_are_only_added_to_paths_that_need_them():
    for path in ("/a/b-c/step_000001", "/a b/it's/step_000001"):
        override = resume.Checkpoint(Path(path), 1, "grpo-0").override
        assert (override == f"train.resume_from={path}") is (" " not in path)
