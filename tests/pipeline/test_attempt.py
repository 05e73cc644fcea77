import subprocess
import sys

from pipeline.store.attempt import attempt, find_running, is_held
from pipeline.store.store import Key, Store
from tests.pipeline.artifacts import manifest_of

KEY = Key("grpo", "ab" * 32)


def killed(store):
    """The work directory of a process that was killed while it had a checkpoint and half a file."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from pipeline.store.attempt import attempt; from pipeline.store.store import Key, Store\n"
        "with attempt(Store(Path(sys.argv[1])), Key('grpo', 'ab' * 32)) as slot:\n"
        "    (slot.work / 'checkpoint').write_text('step 3')\n"
        "    (slot.staging / 'half').write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(store.root)], check=False).returncode == -9
    (work,) = (store.root / ".work").iterdir()
    return work


def test_killed_attempt_leaves_only_checkpoints(tmp_path):
    store = Store(tmp_path)
    work = killed(store)
    assert not is_held(work) and find_running(tmp_path, str(KEY)) is None
    with attempt(store, KEY) as slot:
        assert slot.work == work == store.work_dir(KEY)
        assert list(slot.staging.iterdir()) == []
        assert (slot.work / "checkpoint").read_text() == "step 3"
        assert is_held(work) and find_running(tmp_path, str(KEY)) == work


def test_two_live_attempts_share_no_files(tmp_path):
    store = Store(tmp_path)
    with attempt(store, KEY) as item, attempt(store, KEY) as two:
        assert is_held(item.work) and is_held(two.work)
        assert {item.work, item.logs, item.staging}.isdisjoint({two.work, two.logs, two.staging})
        for slot in (item, two):
            (slot.staging / "result.json").write_text("content")
        store.commit(two.staging, manifest_of(KEY))
        two.done()
        assert (item.staging / "result.json").read_text() == "content"
        store.commit(item.staging, manifest_of(KEY))  # loses, and finds the other's artifact
        item.done()
    assert store.problem(KEY, deep=True) is None
    assert list((tmp_path / ".work").iterdir()) == []
