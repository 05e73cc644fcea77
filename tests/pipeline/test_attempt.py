import json
import multiprocessing
import os
import subprocess
import sys

import pytest

from pipeline.store import attempt as attempts
from pipeline.store.attempt import attempt, is_held
from pipeline.store.store import Key, Store
from tests.pipeline.artifacts import manifest_of

KEY = Key("grpo", "ab" * 32)


def killed(store):
    """The seat of a process that was killed while it had a checkpoint and half a file."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from pipeline.store.attempt import attempt; from pipeline.store.store import Key, Store\n"
        "with attempt(Store(Path(sys.argv[1])), Key('grpo', 'ab' * 32)) as seat:\n"
        "    (seat.work / 'checkpoint').write_text('step 3')\n"
        "    (seat.staging / 'half').write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(store.root)], check=False).returncode == -9
    (work,) = (store.root / ".work").iterdir()
    return work


def elsewhere(work):
    """The same owner, as another machine would have written it."""
    (owner,) = work.glob("owner-*")
    owner.write_text(json.dumps({**json.loads(owner.read_text()), "place": "node7"}))
    return owner


def test_a_dead_attempt_leaves_its_checkpoints_but_no_files(tmp_path):
    store = Store(tmp_path)
    work = killed(store)
    assert not is_held(work)
    with attempt(store, KEY) as seat:
        assert seat.work == work == store.work_dir(KEY)
        assert list(seat.staging.iterdir()) == []
        assert (seat.work / "checkpoint").read_text() == "step 3"
        assert len(list(seat.work.glob("owner-*"))) == 1


def test_a_failed_attempt_leaves_the_same(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt), attempt(store, KEY) as seat:
        (seat.work / "checkpoint").write_text("step 3")
        raise KeyboardInterrupt
    assert not seat.staging.exists() and not is_held(seat.work)
    with attempt(store, KEY) as again:
        assert (again.work / "checkpoint").read_text() == "step 3"


def test_two_living_attempts_share_nothing(tmp_path):
    store = Store(tmp_path)
    with attempt(store, KEY) as one, attempt(store, KEY) as two:
        assert is_held(one.work) and is_held(two.work)
        assert {one.work, one.logs, one.staging}.isdisjoint({two.work, two.logs, two.staging})
        for seat in (one, two):
            (seat.staging / "result.json").write_text("content")
        store.commit(two.staging, manifest_of(KEY))
        two.done()
        assert (one.staging / "result.json").read_text() == "content"
        store.commit(one.staging, manifest_of(KEY))  # loses, and finds the other's whole
        one.done()
    assert store.problem(KEY, deep=True) is None
    assert list((tmp_path / ".work").iterdir()) == []


def _sit(root, barrier, seats):
    barrier.wait()
    with attempt(Store(root), KEY) as seat:
        seats.put(seat.work.name)
        barrier.wait()


def test_heirs_of_one_dead_attempt_do_not_share_its_seat(tmp_path):
    killed(Store(tmp_path))
    context = multiprocessing.get_context("spawn")
    barrier, seats = context.Barrier(6), context.Queue()
    heirs = [context.Process(target=_sit, args=(tmp_path, barrier, seats)) for _ in range(6)]
    for heir in heirs:
        heir.start()
    taken = sorted(seats.get(timeout=60) for _ in heirs)
    for heir in heirs:
        heir.join()
    assert taken == [KEY.flat, *(f"{KEY.flat}+{number}" for number in range(1, 6))]


def test_a_number_that_another_process_has_now_is_not_its_owner(tmp_path):
    work = killed(Store(tmp_path))
    (owner,) = work.glob("owner-*")
    owner.write_text(json.dumps({**json.loads(owner.read_text()), "pid": os.getpid()}))
    assert not is_held(work)


def test_an_owner_elsewhere_is_alive_while_it_beats(tmp_path, monkeypatch):
    owner = elsewhere(killed(Store(tmp_path)))
    monkeypatch.setattr(attempts, "WATCH_S", 4.0)

    def beat(seconds):
        owner.write_text(json.dumps({**json.loads(owner.read_text()), "beats": 1}))

    monkeypatch.setattr(attempts.time, "sleep", beat)
    assert is_held(owner.parent)


def test_an_owner_elsewhere_that_beats_no_more_is_dead(tmp_path, monkeypatch):
    store = Store(tmp_path)
    work = elsewhere(killed(store)).parent
    monkeypatch.setattr(attempts, "WATCH_S", 0.01)
    with attempt(store, KEY) as seat:
        assert seat.work == work


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_an_owner_that_was_cut_short_is_dead(tmp_path, monkeypatch, content):
    work = killed(Store(tmp_path))
    next(work.glob("owner-*")).write_text(content)
    monkeypatch.setattr(attempts, "WATCH_S", 0.01)
    assert not is_held(work)


def test_a_beat_is_written_no_more_often_than_needed(tmp_path, monkeypatch):
    with attempt(Store(tmp_path), KEY) as seat:
        (owner,) = seat.work.glob("owner-*")
        seat.beat()
        first = owner.read_text()
        seat.beat()
        assert owner.read_text() == first
        monkeypatch.setattr(attempts, "BEAT_S", 0.0)
        seat.beat()
        assert owner.read_text() != first
