"""Growing logs. Readers of files: tests/properties/test_files.py."""

import os

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
