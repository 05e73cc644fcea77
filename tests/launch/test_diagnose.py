"""Diagnosis of logs of real failures (tests/data/logs/README.md) and of healthy runs."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

import pipeline  # noqa: F401 - adds the engines' tables
from launch.diagnose.diagnosis import diagnose, logs_of
from launch.diagnose.failures import GRPOFLOW_ERROR, failures
from launch.diagnose.log import HEAD_BYTES, TAIL_BYTES
from launch.errors import ProcessFailed
from launch.process import child

LOGS = Path(__file__).parents[1] / "data" / "logs"
EXPECTED = yaml.safe_load((LOGS / "expected.yaml").read_text(encoding="utf-8"))
"""Directory -> entry of the table, or None, and the log of the worker that failed first."""


def first_of(directory):
    """Return the name of the known failure, or None, the line and the text of the first finding."""
    first = diagnose(directory).first
    assert first is not None
    return first.failure and first.failure.name, first.line, first.text


def restored(case, target):
    """A copy with the times at which the logs were last written, which git does not keep."""
    shutil.copytree(case, target)
    times = target / "last_written.json"
    for name, when in json.loads(times.read_text()).items() if times.exists() else ():
        os.utime(target / name, (when, when))
    return target


@pytest.mark.parametrize("case", sorted((LOGS / "failed").iterdir()), ids=lambda case: case.name)
def test_failures_are_recognised(case, tmp_path):
    failure, log = EXPECTED[case.name]
    logs = restored(case, tmp_path / "logs")
    assert first_of(logs)[0] == failure
    result = diagnose(logs)
    assert result.culprit is not None and result.culprit.name == log
    assert result.known == (failure is not None) and result.lines()


def test_every_entry_of_the_table_has_a_log():
    assert set(EXPECTED) == {case.name for case in (LOGS / "failed").iterdir()}
    assert {name for name, _ in EXPECTED.values()} - {None} == {item.name for item in failures()}
    listed = [failure for failure in failures() if failure is not GRPOFLOW_ERROR]
    assert all(failure.sign and failure.cause and failure.remedy for failure in listed)


@pytest.mark.parametrize("case", sorted((LOGS / "healthy").iterdir()), ids=lambda case: case.name)
def test_healthy_logs_raise_no_alarm(case):
    result = diagnose(case)
    assert result.logs
    assert result.first is None, result.lines()


def test_of_several_causes_the_earliest_counts(tmp_path):
    for rank, second in ((0, 5), (1, 2), (2, 9)):
        text = f"OSError: [Errno 28] No space left on device\n2026-01-01 10:00:0{second},000 - end\n"
        (tmp_path / f"worker_{rank}.log").write_text(text)
    assert diagnose(tmp_path).culprit == tmp_path / "worker_1.log"


def test_an_unknown_error_is_reported_as_unknown(tmp_path):
    text = "Traceback (most recent call last):\n  File \"x.py\", line 1\nKeyError: 'lr'\n"
    (tmp_path / "stage.log").write_text(f"all well\n{text}")
    assert first_of(tmp_path) == (None, 4, "KeyError: 'lr'") and not diagnose(tmp_path).known


def test_logs_that_cannot_be_read_are_counted(tmp_path):
    (tmp_path / "worker_0.log").symlink_to("/proc/self/mem")  # reading it fails for root, too
    (tmp_path / "worker_1.log").write_text("MemoryError\n")
    result = diagnose(tmp_path)
    assert (result.culprit, result.unreadable) == (tmp_path / "worker_1.log", 1)
    (tmp_path / "worker_1.log").write_text("")
    assert diagnose(tmp_path).lines()[0].endswith("; 1 more cannot be read")


def test_of_several_attempts_the_newest_is_read(tmp_path):
    for number in (1, 2):
        attempt = tmp_path / f"attempt_{number}"
        attempt.mkdir()
        (attempt / "worker_0.log").write_text("")
        os.utime(attempt, (number, number))
    (tmp_path / "stage.log").write_text("")  # what comes before and after the engine's run
    assert logs_of(tmp_path) == [tmp_path / "attempt_2" / "worker_0.log", tmp_path / "stage.log"]


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed"),
        ("import os; os.kill(os.getpid(), 15)", "terminated"),
        ("import os; os.kill(os.getpid(), 11)", "segmentation_fault"),
        ("import no_such_module", "module"),
        ("open('/dev/full', 'w').write('x' * 9999)", "disk_full"),
    ],
)
def test_ends_that_launch_logs_are_recognised(program, failure, tmp_path):
    with pytest.raises(ProcessFailed):
        child.run([sys.executable, "-c", program], job=f"diagnose-{tmp_path}", log=tmp_path / "stage.log")
    assert first_of(tmp_path)[0] == failure


def test_the_last_attempt_in_a_log_counts(tmp_path):
    full = "OSError: [Errno 28] No space left on device\n\ngrpoflow: ended with exit code 1\n"
    (tmp_path / "stage.log").write_text(f"{full}loading\n\ngrpoflow: ended by signal 9 (SIGKILL)\n")
    assert first_of(tmp_path)[0] == "killed"
    (tmp_path / "stage.log").write_text(f"loading\ngrpoflow: ended with exit code 1\n{full}")
    assert first_of(tmp_path)[:2] == ("disk_full", 3)


def test_the_end_of_a_log_of_gigabytes_is_read(tmp_path):
    log = tmp_path / "worker_0.log"
    with log.open("wb") as file:
        lines = 0
        while file.tell() < HEAD_BYTES + TAIL_BYTES + 2**20:
            file.write(b"step\n" * 4096)
            lines += 4096
        file.write(b"MemoryError\n")
    _, line, text = first_of(tmp_path)
    assert text == "MemoryError" and abs(line - (lines + 1)) <= 1  # the cut may lie within a line
