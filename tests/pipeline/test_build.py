"""What an artifact is checked for before it is built and before it is committed."""

from pathlib import Path

import pytest

from pipeline import build as building
from pipeline.build import build
from pipeline.errors import StageFailed
from pipeline.graph import StageSpec
from pipeline.progress import Display
from pipeline.run import prepare_plan
from pipeline.store import Manifest, Store
from tests.pipeline.artifacts import manifest_of

ROW = '{"question": "1+1?", "answer": "#### 2"}\n'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text(ROW)
    return tmp_path


def planned(data: Path) -> tuple[StageSpec, Store]:
    plan, store = prepare_plan(["dataset=gsm8k", f"dataset.path={data}", f"store={data / 'store'}"])
    return plan.spec("fetch_dataset"), store


def built(spec: StageSpec, store: Store) -> bool:
    launcher = prepare_plan([f"store={store.root}"])[0].config.launcher
    return build(spec, store, launcher, Display([spec.name], []), 0.0)


def test_a_file_that_was_changed_after_planning_is_not_read(data: Path) -> None:
    spec, store = planned(data)
    (data / "train.jsonl").write_text(ROW * 2)
    with pytest.raises(StageFailed, match=r"train\.jsonl has been changed, or is gone, since this run"):
        built(spec, store)
    (data / "train.jsonl").unlink()
    with pytest.raises(StageFailed, match=r"train\.jsonl has been changed, or is gone, since this run"):
        built(spec, store)
    assert not list(store.root.glob("fetch_dataset/*"))


def test_a_file_that_was_changed_while_the_stage_read_it_commits_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, store = planned(data)

    def stage(spec: StageSpec, store: Store, seat: building.Attempt, *rest: object) -> Manifest:
        for name in ("train", "test"):
            (seat.staging / f"{name}.jsonl").write_text(ROW)
        (data / "test.jsonl").write_text(ROW * 2)
        return manifest_of(spec.key)

    monkeypatch.setattr(building, "_run", stage)
    with pytest.raises(StageFailed, match=r"test\.jsonl has been changed"):
        built(spec, store)
    assert not list(store.root.glob("fetch_dataset/*"))
    spec, store = planned(data)
    (data / "train.jsonl").touch()  # looked at again, and found to be the same
    monkeypatch.setattr(building, "_run", lambda spec, store, seat, *rest: _quiet(spec, seat))
    assert built(spec, store) and store.problem(spec.key) is None


def _quiet(spec: StageSpec, seat: building.Attempt) -> Manifest:
    for name in ("train", "test"):
        (seat.staging / f"{name}.jsonl").write_text(ROW)
    return manifest_of(spec.key)
