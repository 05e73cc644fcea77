"""What comes is appended as it is, past the cache or through it, and nothing is written behind a gap."""

import errno
import fcntl
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.errors import RemoteError
from pipeline.store.remote import disk, pull
from pipeline.store.remote.copies import find
from pipeline.store.remote.disk import Appender
from pipeline.store.remote.place import Place
from pipeline.store.remote.push import push
from tests.pipeline.artifacts import commit
from tests.pipeline.remote.conftest import KEY, PART_BYTES

BLOCK = 4 * disk.ALIGNED_BYTES
CONTENT = random.Random(5).randbytes(5 * BLOCK + 777)
REAL = os.write


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Blocks of 16 KiB instead of 8 MiB, and a lane for each two parts."""
    monkeypatch.setattr(disk, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(pull, "LANE_BYTES", 2 * PART_BYTES)
    monkeypatch.setattr(pull, "LANES", 3)


@pytest.fixture
def appender():
    with ThreadPoolExecutor(1) as writing:
        yield Appender(writing)


def is_direct(descriptor):
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def add(appender, path, content):
    drawn, left = random.Random(6), memoryview(content)
    with appender.to(path):
        while left:
            size = drawn.randrange(1, 2 * BLOCK)
            appender.add(left[:size])
            left = left[size:]


@pytest.mark.parametrize("there", [0, BLOCK, 5000, len(CONTENT)])
def test_what_is_appended_follows_what_was_there(there, appender, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(CONTENT[:there])
        add(appender, tmp_path / name, CONTENT[there:])
        assert (tmp_path / name).read_bytes() == CONTENT


def test_a_file_system_that_refuses_direct_writes_gets_others(appender, tmp_path, monkeypatch):
    refused: list[int] = []

    def write(descriptor, content):
        if is_direct(descriptor):
            refused.append(len(content))
            raise OSError(errno.EINVAL, "Invalid argument")
        return REAL(descriptor, content)

    monkeypatch.setattr(os, "write", write)
    add(appender, tmp_path / "file", CONTENT)
    assert (tmp_path / "file").read_bytes() == CONTENT and len(refused) <= 1


def test_behind_a_block_that_could_not_be_written_there_is_nothing(appender, tmp_path, monkeypatch):
    left = [BLOCK, 100]

    def write(descriptor, content):
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return REAL(descriptor, content[: left.pop(0)])

    monkeypatch.setattr(disk, "_set_direct", lambda *ignored: None)
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(disk, "PIECE_BYTES", BLOCK)
    with pytest.raises(OSError, match="No space left"):
        add(appender, tmp_path / "full", CONTENT)
    assert (tmp_path / "full").read_bytes() == CONTENT[: BLOCK + 100]
    monkeypatch.undo()
    add(appender, tmp_path / "next", b"other")  # nothing of the first is left over
    assert (tmp_path / "next").read_bytes() == b"other"


def several(team):
    commit(team.mine, KEY, {f"{n}.bin": os.urandom(2 * PART_BYTES + n) for n in range(6)})
    push(team.place, team.mine, KEY)


def test_lanes_bring_what_one_would(file_team, monkeypatch):
    several(file_team)
    copy = find(file_team.place, KEY)[0]
    names = sorted(copy.manifest.files)
    lanes = pull._lanes(names, copy)
    assert len(lanes) == 3 and [name for lane in lanes for name in lane] == names
    assert pull._lanes(["0.bin"], copy) == [["0.bin"]] and pull._lanes([], copy) == []
    assert pull.pull(file_team.place, file_team.theirs, KEY)
    assert file_team.theirs.problem(KEY, deep=True) is None


def test_an_interrupt_waits_for_no_answer_and_nothing_is_written_after_it(file_team, monkeypatch, tmp_path):
    """Whoever is interrupted gives the directory up: somebody else may write there at once."""
    several(file_team)
    copy = find(file_team.place, KEY)[0]
    asked, answer, real = threading.Event(), threading.Event(), Place.get

    def silent(place, path, *span):
        asked.set()
        answer.wait(60)
        return real(place, path, *span)

    def interrupt():
        assert asked.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(Place, "get", silent)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        pull.fill(file_team.place, copy, tmp_path / "begun", beat=interrupt)
    asking = set(threading.enumerate()) - before
    assert 0 < len(asking) <= file_team.place.workers  # those that write are gone
    left = {file: file.read_bytes() for file in (tmp_path / "begun").iterdir()}
    answer.set()
    for thread in asking:
        thread.join(60)
    assert {file: file.read_bytes() for file in (tmp_path / "begun").iterdir()} == left


def test_a_lane_that_fails_is_told_though_others_go_on(file_team, monkeypatch):
    several(file_team)
    real = Place.get

    def fails(place, path, *span):
        if path.endswith("00000007"):
            raise RemoteError("cut")
        return real(place, path, *span)

    with monkeypatch.context() as broken:
        broken.setattr(Place, "get", fails)
        with pytest.raises(RemoteError, match="cut"):
            pull.pull(file_team.place, file_team.theirs, KEY)
    assert file_team.theirs.problem(KEY) == "never run"
    assert pull.pull(file_team.place, file_team.theirs, KEY)
    assert file_team.theirs.problem(KEY, deep=True) is None
