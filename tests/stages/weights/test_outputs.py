"""Outputs appear complete or not at all; a full disk is one clear error."""

import errno
import os
import shutil
import signal
import subprocess
import sys

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


def test_a_target_that_is_a_file(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="exists already"), complete_directory(tmp_path / "out"):
        pass


def test_too_little_space_is_told_before_writing(tmp_path, monkeypatch):
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


def test_two_at_one_target_the_second_is_refused_before_it_writes(tmp_path):
    target = tmp_path / "out"
    with complete_directory(target) as directory:
        (directory / "file").write_text("first")
        with (
            pytest.raises(InputError, match="is being written by another process"),
            complete_directory(target),
        ):
            pytest.fail("both write")
        assert (directory / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(InputError, match="exists already"), complete_directory(target):
        pytest.fail("it is there")


def test_a_target_that_somebody_else_has_filled_meanwhile_is_kept(tmp_path):
    with pytest.raises(InputError, match="exists already"), complete_directory(tmp_path / "out") as directory:
        (directory / "file").write_text("ours")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "file").write_text("theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "file").read_text() == "theirs"


def test_what_a_killed_attempt_left_is_cleared_by_the_next(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from stages.weights.outputs import complete_directory\n"
        "with complete_directory(Path(sys.argv[1])) as directory:\n"
        "    (directory / 'rank_0').mkdir(); (directory / 'rank_0' / 'model').write_text('x' * 1000)\n"
        "    print('begun', flush=True); time.sleep(60)\n"
    )
    target = tmp_path / "out"
    killed = subprocess.Popen([sys.executable, "-c", program, str(target)], stdout=subprocess.PIPE)
    assert killed.stdout.readline() == b"begun\n"
    with pytest.raises(InputError, match="is being written"), complete_directory(target):
        pytest.fail("its owner lives")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert [path.name for path in tmp_path.iterdir()] == [".out.part"]
    with complete_directory(target) as directory:
        assert list(directory.iterdir()) == []
        (directory / "file").write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
