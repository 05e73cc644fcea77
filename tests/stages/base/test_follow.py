import os

from stages.base.follow import Follower, Silence


def test_lines_come_once_and_whole(tmp_path):
    log = tmp_path / "a.log"
    follower = Follower(log)
    assert follower.lines() == []
    log.write_bytes(b"one\ntw")
    assert follower.lines() == ["one"]
    with log.open("ab") as file:
        file.write(b"o\nthr\xff\n")
    assert follower.lines() == ["two", "thr�"]
    assert follower.lines() == []


def test_any_log_that_grows_breaks_the_silence(tmp_path):
    silence, log = Silence(tmp_path), tmp_path / "worker_7.log"

    def quiet():
        silence._last_change -= 100.0
        return silence.seconds() >= 100.0

    assert quiet()
    log.write_text("x")
    assert not quiet() and quiet()
    os.utime(log, (0, 0))  # touched while Slurm's queue is waited in
    assert not quiet() and quiet()
    log.rename(tmp_path / "earlier")
    assert not quiet() and quiet()


def test_a_file_that_takes_its_place_is_read_from_its_start(tmp_path):
    log = tmp_path / "a.log"
    follower = Follower(log)
    log.write_text("one\ntwo\nhal")
    assert follower.lines() == ["one", "two"] and follower.renewed
    assert follower.lines() == [] and not follower.renewed
    log.rename(tmp_path / "old")
    assert follower.lines() == [] and not follower.renewed
    log.write_text("three\nfour\nfive\n")
    assert follower.lines() == ["three", "four", "five"] and follower.renewed
    log.write_text("six\n")  # shorter: begun anew in the same file
    assert follower.lines() == ["six"] and follower.renewed
