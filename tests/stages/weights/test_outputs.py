"""Outputs appear complete or not at all; a full disk is one clear error."""

import errno
import os
import shutil

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.outputs import OutputFiles, complete_directory
from stages.weights.tensors import write_rank


def test_a_directory_appears_when_complete(tmp_path):
    with complete_directory(tmp_path / "deep" / "out") as directory:
        (directory / "file").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out").stat().st_mode & 0o777 == 0o755


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), complete_directory(tmp_path / "out") as directory:
        (directory / "file").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_reported_before_writing(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=2**29)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with OutputFiles() as files:
        files.create(tmp_path / "x.safetensors", [("w", "F32", (2**28,))])  # sparse: takes no space
        with pytest.raises(InputError, match=r"disk full: 1.0 GiB are needed, 512.0 MiB are free"):
            files.check_space()


def test_disk_full_while_writing(tmp_path, monkeypatch):
    original = os.pwrite

    def fail_beyond_header(descriptor, data, offset):
        if offset:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", fail_beyond_header)
    with pytest.raises(InputError, match=r"x.safetensors: disk full"):
        write_rank({"w": np.zeros(3, np.float32)}, tmp_path / "x.safetensors", None)


def test_short_writes_are_continued(tmp_path, monkeypatch):
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: original(descriptor, data[:5], offset))
    array = np.arange(100, dtype=np.float32)
    write_rank({"w": array}, tmp_path / "x.safetensors", None)
    assert (tmp_path / "x.safetensors").read_bytes().endswith(array.tobytes())


def test_second_writer_of_a_directory_is_refused_before_it_writes(tmp_path):
    target = tmp_path / "out"
    with complete_directory(target) as directory:
        (directory / "file").write_text("first")
        with pytest.raises(InputError, match="is being written"), complete_directory(target):
            pytest.fail("both write")
        assert (directory / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_existing_target_is_not_overwritten(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(InputError, match="exists already"), complete_directory(target) as directory:
        (directory / "file").write_text("ours")
        target.mkdir()
        (target / "file").write_text("theirs")
    for existing in (target, target / "file"):
        with pytest.raises(InputError, match="exists already"), complete_directory(existing):
            pytest.fail("it exists")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "file").read_text() == "theirs"


def test_file_system_without_locks(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with complete_directory(tmp_path / "out") as directory:
        (directory / "file").write_text("x")
        with pytest.raises(InputError, match="is being written"), complete_directory(tmp_path / "out"):
            pytest.fail("another process may be writing it")
    assert (tmp_path / "out" / "file").read_text() == "x"
