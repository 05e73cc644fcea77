"""Lists of files, and growing logs. Readers of files: tests/properties/test_files.py."""

import os

import pytest

from stages.base.files import difference, digest_entry, is_digest_entry
from stages.base.follow import Follower, Silence


def test_complete_lines_are_returned_once_and_a_replaced_file_is_read_from_its_start(tmp_path):
    log = tmp_path / "a.log"
    follower = Follower(log)
    assert follower.lines() == []
    log.write_bytes(b"one\ntw")
    assert follower.lines() == ["one"]
    with log.open("ab") as file:
        file.write(b"o\nthr\xff\n")
    assert follower.lines() == ["two", "thr�"]
    log.rename(tmp_path / "old")
    assert follower.lines() == []
    log.write_text("three\nfour\nfive and more\n")
    assert follower.lines() == ["three", "four", "five and more"]
    log.write_text("six\n")  # truncated and written again
    assert follower.lines() == ["six"]


def test_a_growing_log_resets_the_time_since_the_last_change(tmp_path):
    silence, log = Silence(tmp_path), tmp_path / "worker_7.log"

    def quiet():
        silence._last_change -= 100.0
        return silence.seconds() >= 100.0

    assert quiet()
    log.write_text("x")
    assert not quiet() and quiet()
    os.utime(log, (0, 0))  # a job that waits in Slurm's queue touches its log
    assert not quiet() and quiet()


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "a/../../b", "a//b", "./a", "a/", "a\0b"])
def test_a_list_of_files_names_no_path_outside_its_directory(name, tmp_path):
    (tmp_path / "file").write_text("content")
    entry = digest_entry(tmp_path / "file")
    assert is_digest_entry("a/..b/c d", entry)
    assert not is_digest_entry(name, entry)


@pytest.mark.parametrize("entry", [None, [], {}, {"size": True, "sha256": ""}, {"size": 1, "sha256": None}])
def test_an_entry_without_size_or_digest_is_refused(entry):
    assert not is_digest_entry("file", entry)


def test_a_file_differs_from_its_entry_in_size_or_content(tmp_path):
    file = tmp_path / "file"
    file.write_text("content")
    entry = digest_entry(file)
    assert difference(file, entry) is None
    file.write_text("Content")
    assert difference(file, entry) and difference(file, entry, deep=False) is None
    file.write_text("longer content")
    assert difference(file, entry, deep=False)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        difference(file, entry)
