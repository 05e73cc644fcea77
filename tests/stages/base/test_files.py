"""Readers of files and growing logs. That each uses open_regular: tests/properties/test_files.py."""

import os

import pytest

from stages.base.errors import InputError
from stages.base.files import open_regular, parse_json, read_object, read_optional_object, understood
from stages.base.follow import Follower, Silence


@pytest.mark.timeout(30)
def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "directory").mkdir()
    for kind in ("pipe", "device", "directory"):
        with pytest.raises(OSError, match=rf"a {kind}, not a file"):
            open_regular(tmp_path / kind)


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff", b"", b"[" * 100_000])
def test_a_file_without_an_object_is_refused_with_the_remedy(content, tmp_path):
    file = tmp_path / "file"
    assert read_optional_object(file) == {}
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}: .*; write it again"):
        read_object(file, "write it again")


@pytest.mark.parametrize(
    "wrong",
    [lambda values: values["b"], lambda values: values["a"]["x"], lambda values: values["a"][3],
     lambda values: int("x"), lambda values: values.nothing],
)  # fmt: skip
def test_wrong_values_are_an_error_of_the_file(wrong, tmp_path):
    with pytest.raises(InputError) as refused, understood(tmp_path, "a list of numbers", "write it again"):
        wrong(parse_json('{"a": [1]}'))
    assert (refused.value.problem.path, refused.value.problem.remedy) == (str(tmp_path), "write it again")


def test_complete_lines_are_returned_once_and_a_replaced_file_is_read_from_its_start(tmp_path):
    log = tmp_path / "a.log"
    follower = Follower(log)
    assert follower.lines() == []
    log.write_bytes(b"one\ntw")
    assert follower.lines() == ["one"] and follower.renewed
    with log.open("ab") as file:
        file.write(b"o\nthr\xff\n")
    assert follower.lines() == ["two", "thr�"] and not follower.renewed
    log.rename(tmp_path / "old")
    assert follower.lines() == [] and not follower.renewed
    log.write_text("three\nfour\nfive and more\n")
    assert follower.lines() == ["three", "four", "five and more"] and follower.renewed
    log.write_text("six\n")  # truncated and written again
    assert follower.lines() == ["six"] and follower.renewed


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
