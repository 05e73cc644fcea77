"""Search of one log: what is read, and which errors are passed over."""

import time

from launch.diagnose.diagnosis import diagnose
from launch.diagnose.log import HEAD_BYTES, TAIL_BYTES


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


def test_a_log_of_4_mib_is_searched_in_a_second(tmp_path):
    lines = (
        "[INFO] RUNTIME(1234,7f,python):2026-01-01-10:00:00.123 step {0}\nstep {0}: loss 2.5, tokens/s 33\n"
    )
    text = "".join(lines.format(number) for number in range(50_000))
    assert len(text) > 4 << 20
    for worker in range(8):
        (tmp_path / f"worker_{worker}.log").write_text(text)
    began = time.process_time()
    assert diagnose(tmp_path).first is None
    assert time.process_time() - began < 8 * 60 / 64
