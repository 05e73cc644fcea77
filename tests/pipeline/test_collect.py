import pytest

from pipeline.cli import main
from pipeline.errors import StoreError
from pipeline.store import history, leases
from pipeline.store.attempt import attempt
from pipeline.store.collect import collect
from pipeline.store.store import Key, Store
from tests.pipeline.artifacts import commit


def run(store, name, *stages):
    """A run whose artifacts are named after it; the same name is the same artifacts."""
    artifacts, paths = {}, {}
    for stage in stages:
        key = Key(stage, f"{sum(name.encode()):064x}"[::-1])
        artifacts[stage] = str(key)
        complete = store.problem(key) is None
        paths[stage] = store.path(key) if complete else commit(store, key, {"file": "x" * 1000})
    number = len(history.runs(store.root))
    history.record(store.root, f"{number:03}-{name}", "started", overrides=[], config={}, artifacts=artifacts)
    return paths


def exists(paths):
    states = {path.exists() for path in paths.values()}
    assert len(states) == 1
    return states.pop()


def test_pinned_named_and_live_runs_are_retained(tmp_path):
    store = Store(tmp_path)
    paths = [run(store, name, "grpo") for name in ("pinned", "named", "living", "gone", "new")]
    ids = list(history.runs(tmp_path))
    history.record(tmp_path, ids[0], "pinned")
    history.record(tmp_path, ids[1], "named", name="paper")
    held = leases.take(tmp_path, ids[2])
    collect(store, keep=1, delete=True)
    assert [exists(path) for path in paths] == [True, True, True, False, True]
    held.release()
    collect(store, keep=1, delete=True)
    assert [exists(path) for path in paths] == [True, True, False, False, True]


def rewrite(store, keep_lines):
    """Cut the history, as a bad copy or a careless editor does."""
    file = store.root / history.FILE
    file.write_text("".join(file.read_text().splitlines(keepends=True)[keep_lines]))


@pytest.mark.parametrize("damage", ["absent", "empty", "garbage"])
def test_gc_without_a_readable_history_removes_nothing(tmp_path, damage):
    store = Store(tmp_path)
    paths = [run(store, name, "fetch", "grpo") for name in ("pinned", "middle", "new")]
    history.record(tmp_path, next(iter(history.runs(tmp_path))), "pinned")
    (tmp_path / ".quarantine" / "evidence").mkdir(parents=True)
    file = tmp_path / history.FILE
    if damage == "absent":
        file.unlink()
    else:
        file.write_bytes(b"\xff\x00" * 10_000 if damage == "garbage" else b"")
    for delete in (False, True):
        with pytest.raises(StoreError, match="nothing is removed"):
            collect(store, keep=0, delete=delete)
    assert all(exists(path) for path in paths) and (tmp_path / ".quarantine" / "evidence").exists()
    assert main(["gc", "--keep", "0", "--delete", f"store={tmp_path}"]) == 1
    assert all(exists(path) for path in paths)


def test_gc_keeps_artifacts_of_unrecorded_runs(tmp_path, capsys):
    store = Store(tmp_path)
    lost, old, new = (run(store, name, "fetch", "grpo") for name in ("lost", "old", "new"))
    rewrite(store, slice(1, None))
    for location in (".work", ".logs"):
        (tmp_path / location / f"grpo-{lost['grpo'].name}").mkdir(parents=True, exist_ok=True)
    assert main(["gc", "--keep", "1", "--delete", f"store={tmp_path}"]) == 0
    assert exists(lost) and exists(new) and not exists(old)
    assert (tmp_path / ".work" / f"grpo-{lost['grpo'].name}").exists()
    assert f"{lost['fetch']}" in capsys.readouterr().out


def test_gc_refuses_if_a_live_run_is_not_recorded(tmp_path):
    store = Store(tmp_path)
    path = run(store, "one", "grpo")
    held = leases.take(tmp_path, "20270101-000000-abcd")
    with pytest.raises(StoreError, match="20270101-000000-abcd is running"):
        collect(store, keep=0, delete=True)
    assert exists(path)
    held.release()
    collect(store, keep=0, delete=True)
    assert not exists(path)


def test_gc_keeps_artifacts_of_a_live_attempt_without_a_lease(tmp_path):
    """An attempt holds a lock of its own: its artifacts stay even if no run has a lease."""
    store = Store(tmp_path)
    made = run(store, "building", "fetch")
    key = Key("grpo", "b" * 64)
    artifacts = {"fetch": f"fetch/{made['fetch'].name}", "grpo": str(key)}
    history.record(tmp_path, "000-it", "started", overrides=[], config={}, artifacts=artifacts)
    for number in range(3):
        run(store, f"newer{number}", "fetch")
    with attempt(store, key) as slot:
        (slot.work / "checkpoint").write_text("hours")
        (slot.logs / "log").write_text("lines")
        collect(store, keep=0, delete=True)
        assert exists(made) and slot.staging.exists()
        assert (slot.work / "checkpoint").exists() and (slot.logs / "log").exists()
        rewrite(store, slice(1))
        with pytest.raises(StoreError, match=f"the run that builds {key.flat} now is not recorded"):
            collect(store, keep=0, delete=True)
    assert exists(made)
