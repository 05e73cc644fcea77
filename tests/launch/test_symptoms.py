"""What of one log is looked at, and what is passed over."""

import re
from pathlib import Path

import pytest

from launch.diagnose.diagnosis import diagnose
from launch.diagnose.failures import failures
from launch.diagnose.symptoms import HEAD_BYTES, TAIL_BYTES, _is_one_line, _words

LOGS = Path(__file__).parents[1] / "data" / "logs"


def test_words_that_spare_a_pattern_are_in_all_that_it_matches():
    found = 0
    for log in (LOGS / "failed").rglob("*.log"):
        text = log.read_text()
        for one in failures():
            for match in re.finditer(one.pattern, text, re.M):
                assert any(all(word in match[0] for word in words) for words in _words(one.pattern)), one.name
                assert not _is_one_line(one.pattern) or "\n" not in match[0], (one.name, match[0])
                found += 1
    assert found > 100


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc|defg", (("abc",), ("defg",))),
        ("ab+cdef?g", (("cde",),)),
        (r"a\.bc(?:long|short)x{2}", (("a.bc",),)),
        ("abc|.*", ()),
        ("(?:left|right)", ()),
        (r"[Nn]o space: \d+ of (?P<disk>\w+)", (("o space: ", " of "),)),
    ],
)
def test_words_of_a_pattern(pattern, words):
    assert _words(pattern) == words


@pytest.mark.parametrize(
    ("pattern", "one"), [("a.b", True), (r"a[^\w\n]b", True), (r"a\sb", False), ("[^b]", False)]
)
def test_patterns_that_may_reach_over_a_line_s_end_are_known(pattern, one):
    assert _is_one_line(pattern) == one


def test_an_exception_that_was_caught_is_no_failure(tmp_path):
    caught = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'flash_attn'\n"
    (tmp_path / "worker_0.log").write_text(caught + "step\n" * 100)
    assert diagnose(tmp_path).first is None
    (tmp_path / "worker_0.log").write_text("step\n" * 100 + caught)
    first = diagnose(tmp_path).first
    assert first is not None and first.failure is not None and first.failure.name == "module"


def test_of_several_attempts_in_one_log_the_last_counts(tmp_path):
    full = "OSError: [Errno 28] No space left on device\n\ngrpoflow: ended with exit code 1\n"
    (tmp_path / "stage.log").write_text(f"{full}loading\n\ngrpoflow: ended by signal 9 (SIGKILL)\n")
    first = diagnose(tmp_path).first
    assert first is not None and first.failure is not None and first.failure.name == "killed"
    (tmp_path / "stage.log").write_text(f"loading\ngrpoflow: ended with exit code 1\n{full}")
    first = diagnose(tmp_path).first
    assert first is not None and (first.failure.name if first.failure else "", first.line) == ("disk_full", 3)


def test_the_end_of_a_log_of_gigabytes_is_read(tmp_path):
    log = tmp_path / "worker_0.log"
    with log.open("wb") as file:
        lines = 0
        while file.tell() < HEAD_BYTES + TAIL_BYTES + 2**20:
            file.write(b"step\n" * 4096)
            lines += 4096
        file.write(b"MemoryError\n")
    first = diagnose(tmp_path).first
    assert first is not None and first.text == "MemoryError"
    assert abs(first.line - (lines + 1)) <= 1  # the cut may lie within a line
