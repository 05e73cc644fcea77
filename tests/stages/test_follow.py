import os
from pathlib import Path

from stages.follow import Follower, Silence


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    follower = Follower(log)
    assert follower.lines() == []
    log.write_bytes(b"one\ntw")
    assert follower.lines() == ["one"]
    with log.open("ab") as file:
        file.write(b"o\nthr\xff\n")
    assert follower.lines() == ["two", "thr�"]
    assert follower.lines() == []


def test_any_log_that_grows_breaks_the_silence(tmp_path: Path) -> None:
    silence = Silence(tmp_path)
    first = silence.seconds()
    assert silence.seconds() >= first
    (tmp_path / "worker_7.log").write_text("x")
    grown = silence.seconds()
    assert grown < 0.5
    os.utime(tmp_path / "worker_7.log", (0, 0))  # its size counts, not its time
    assert silence.seconds() >= grown
