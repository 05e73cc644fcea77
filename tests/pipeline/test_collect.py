"""gc: what it retains, and when it refuses; tests/properties/test_store.py does the same at random."""

import pytest

from pipeline.cli import main
from pipeline.errors import StoreError
from pipeline.store import history, leases
from pipeline.store.attempt import attempt
from pipeline.store.collect import collect
from pipeline.store.store import Key
from tests.pipeline.artifacts import commit


def run(store, name, *stages):
    """Record a run whose artifacts are named after it; return their directories."""
    keys = [Key(stage, f"{sum(name.encode()):064x}"[::-1]) for stage in stages]
    artifacts = {key.stage: str(key) for key in keys}
    number = len(history.runs(store.root))
    history.record(store.root, f"{number:03}-{name}", "started", overrides=[], config={}, artifacts=artifacts)
    return [commit(store, key, {"file": "x" * 1000}) for key in keys]


def exists(paths):
    (state,) = {path.exists() for path in paths}
    return state


def test_pinned_named_and_live_runs_are_retained(store):
    paths = [run(store, name, "grpo") for name in ("pinned", "named", "living", "gone", "new")]
    ids = list(history.runs(store.root))
    history.record(store.root, ids[0], "pinned")
    history.record(store.root, ids[1], "named", name="paper")
    held = leases.take(store.root, ids[2])
    collect(store, keep=1, delete=True)
    assert [exists(path) for path in paths] == [True, True, True, False, True]
    held.release()
    collect(store, keep=1, delete=True)
    assert [exists(path) for path in paths] == [True, True, False, False, True]


@pytest.mark.parametrize("damage", [None, b"", b"\xff\x00" * 10_000])
def test_gc_without_a_readable_history_removes_nothing(store, damage):
    paths = [run(store, name, "fetch", "grpo") for name in ("one", "two")]
    (store.root / ".quarantine" / "evidence").mkdir(parents=True)
    file = store.root / history.FILE
    file.unlink() if damage is None else file.write_bytes(damage)
    for delete in (False, True):
        with pytest.raises(StoreError, match="nothing is removed"):
            collect(store, keep=0, delete=delete)
    assert main(["gc", "--keep", "0", "--delete", f"store={store.root}"]) == 1
    assert all(exists(path) for path in paths) and (store.root / ".quarantine" / "evidence").exists()


def rewrite(store, keep_lines):
    """Cut the history, like a bad copy or a careless editor."""
    file = store.root / history.FILE
    file.write_text("".join(file.read_text().splitlines(keepends=True)[keep_lines]))


def test_gc_keeps_artifacts_of_unrecorded_runs(store, capsys):
    lost, old, new = (run(store, name, "fetch", "grpo") for name in ("lost", "old", "new"))
    rewrite(store, slice(1, None))
    work = store.root / ".work" / f"grpo-{lost[1].name}"
    work.mkdir(parents=True)
    assert main(["gc", "--keep", "1", "--delete", f"store={store.root}"]) == 0
    assert exists(lost) and exists(new) and not exists(old) and work.exists()
    assert f"{lost[0]}" in capsys.readouterr().out


def test_gc_refuses_if_a_live_run_is_not_recorded(store):
    paths = run(store, "one", "grpo")
    held = leases.take(store.root, "20270101-000000-abcd")
    with pytest.raises(StoreError, match="20270101-000000-abcd is running"):
        collect(store, keep=0, delete=True)
    assert exists(paths)
    held.release()
    collect(store, keep=0, delete=True)
    assert not exists(paths)


def test_gc_keeps_artifacts_of_a_live_attempt_without_a_lease(store):
    """An attempt holds a lock of its own."""
    (made,), key = run(store, "building", "fetch"), Key("grpo", "b" * 64)
    artifacts = {"fetch": f"fetch/{made.name}", "grpo": str(key)}
    history.record(store.root, "000-it", "started", overrides=[], config={}, artifacts=artifacts)
    for number in range(3):
        run(store, f"newer{number}", "fetch")
    with attempt(store, key) as slot:
        for directory in (slot.work, slot.logs, slot.staging):
            (directory / "file").write_text("hours")
        collect(store, keep=0, delete=True)
        assert made.exists()
        assert exists([slot.work / "file", slot.logs / "file", slot.staging / "file"])
        rewrite(store, slice(1))
        with pytest.raises(StoreError, match=f"the run that builds {key.flat} now is not recorded"):
            collect(store, keep=0, delete=True)
    assert made.exists()
