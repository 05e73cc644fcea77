from pathlib import Path

from pipeline import history
from pipeline.collect import collect
from pipeline.store import Key, Store
from tests.pipeline.artifacts import commit


def run(store: Store, name: str, *stages: str) -> dict[str, Path]:
    """A run whose artifacts are named after it; the same name is the same artifacts."""
    artifacts, paths = {}, {}
    for stage in stages:
        key = Key(stage, f"{sum(name.encode()):064x}"[::-1])
        artifacts[stage] = str(key)
        whole = store.problem(key) is None
        paths[stage] = store.path(key) if whole else commit(store, key, {"file": "x" * 1000})
    number = len(history.runs(store.root))
    history.record(store.root, f"{number:03}-{name}", "started", overrides=[], config={}, artifacts=artifacts)
    return paths


def exists(paths: dict[str, Path]) -> bool:
    states = {path.exists() for path in paths.values()}
    assert len(states) == 1
    return states.pop()


def test_without_delete_nothing_goes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = run(store, "old", "fetch", "grpo"), run(store, "new", "fetch", "grpo")
    garbage = collect(store, keep=1, delete=False)
    assert {item.path for item in garbage if item.kind == "artifact"} == set(old.values())
    assert all(item.bytes >= 1000 for item in garbage if item.kind == "artifact")
    assert exists(old) and exists(new)


def test_delete_removes_exactly_what_was_listed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = run(store, "old", "fetch", "grpo"), run(store, "new", "fetch", "grpo")
    assert collect(store, keep=1, delete=True) == collect(store, keep=1, delete=False) or not exists(old)
    assert not exists(old) and exists(new)
    assert collect(store, keep=1, delete=False) == []


def test_shared_artifacts_stay_with_the_run_that_needs_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shared = run(store, "old", "fetch")
    key = Key("fetch", shared["fetch"].name.ljust(64, "0"))
    history.record(store.root, "zzz", "started", overrides=[], config={}, artifacts={"fetch": str(key)})
    collect(store, keep=1, delete=True)
    assert exists(shared)


def test_repeating_a_run_does_not_push_others_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = run(store, "first", "grpo")
    for _ in range(5):
        run(store, "second", "grpo")
    collect(store, keep=2, delete=True)
    assert exists(first)


def test_pinned_named_and_living_runs_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    paths = [run(store, name, "grpo") for name in ("pinned", "named", "living", "gone", "new")]
    ids = list(history.runs(tmp_path))
    history.record(tmp_path, ids[0], "pinned")
    history.record(tmp_path, ids[1], "named", name="paper")
    held = history.lease(tmp_path, ids[2])
    collect(store, keep=1, delete=True)
    assert [exists(path) for path in paths] == [True, True, True, False, True]
    held.release()
    collect(store, keep=1, delete=True)
    assert [exists(path) for path in paths] == [True, True, False, False, True]
