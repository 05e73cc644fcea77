"""Locks of files: who has one, who waits, and what ends it."""

import errno
import fcntl
import os
import threading

import pytest

from pipeline.store import leases


@pytest.fixture
def file(tmp_path):
    return tmp_path / ".locks" / "it.lock"


def test_without_flock_the_file_is_the_lock(file, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    with leases.locked(file, file.parent):
        assert file.exists() and leases.is_locked(file)
        with pytest.raises(leases.AlreadyLocked):
            leases.locked(file, file.parent, wait=False)
    child = os.fork()
    if not child:
        _held = leases.locked(file, file.parent).__enter__()  # a lock without a reference is released
        os._exit(0)
    os.waitpid(child, 0)  # os.wait() may return for a child that another test left
    assert file.exists()
    leases.is_locked(file)  # before filelock 4.3, the first look only removes the file of an ended process
    assert not leases.is_locked(file)
    with leases.locked(file, file.parent, wait=False):
        pass


def test_a_lease_is_taken_although_another_process_checks_its_lock(tmp_path):
    file = tmp_path / ".leases" / "r1.lock"
    file.parent.mkdir()
    with file.open("w") as checked:
        fcntl.flock(checked, fcntl.LOCK_SH)
        threading.Timer(0.2, fcntl.flock, [checked, fcntl.LOCK_UN]).start()
        leases.take(tmp_path, "r1").release()


def test_lock_is_released_although_a_fork_has_its_file_open(file):
    actual, reference = os.pipe()
    with leases.locked(file, file.parent):
        child = os.fork()
        if not child:
            os.close(reference)
            os.read(actual, 1)  # until the parent closes it
            os._exit(0)
    with leases.locked(file, file.parent, wait=False) as held:
        second = os.fork()
        if not second:
            held.__del__()  # as at the end of a process
            os._exit(0)
        os.waitpid(second, 0)
        with pytest.raises(leases.AlreadyLocked):
            leases.locked(file, file.parent, wait=False)
    os.close(reference)
    os.waitpid(child, 0)
