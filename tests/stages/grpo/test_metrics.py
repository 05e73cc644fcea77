import importlib.util
import json
import struct
import subprocess
import sys

import pytest

from stages.grpo.metrics import StepLog, TensorBoard, read_rows


def test_continuing_drops_what_came_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    StepLog(path, 0).append({"step": step, "loss": 1.0} for step in (1, 2, 3))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 4, "lo')  # killed while writing
    log = StepLog(path, 2)
    log.append([{"step": 3, "loss": 2.0}])
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_a_new_run_begins_empty(tmp_path):
    path = tmp_path / "logs" / "metrics.jsonl"
    assert read_rows(path) == []
    StepLog(path, 0).append([{"step": 1}])
    assert StepLog(path, 0).rows == [] and path.read_text(encoding="utf-8") == ""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_writing_for_tensorboard_loads_no_torch(tmp_path):
    program = """
import sys
from pathlib import Path
from stages.grpo.metrics import TensorBoard
board = TensorBoard(Path(sys.argv[1]), [{"step": 1, "time_s": 2.0, "loss": 0.5}])
board.close()
assert "torch" not in sys.modules
import torch  # and it can be had afterwards
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert [path.name for path in tmp_path.glob("*.tfevents.*")]


def test_what_tensorboard_reads_is_what_the_rows_say(tmp_path):
    rows = [{"step": step, "time_s": 10.0 + step, "reward": step / 8, "loss": -step} for step in (1, 2, 300)]
    board = TensorBoard(tmp_path, rows[:2])
    board.add(rows[2])
    board.close()
    (file,) = tmp_path.glob("*.tfevents.*")
    found = {}
    for event in events(file.read_bytes()):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, event.wall_time, value.simple_value))
    assert found == {
        name: [(row["step"], row["time_s"], row[name]) for row in rows] for name in ("reward", "loss")
    }


def events(data):
    """The events of a file: length and its checksum (8 + 4 bytes), the event, its checksum (4), again."""
    from tensorboardX.proto.event_pb2 import Event

    start = 0
    while start < len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        yield Event.FromString(data[start + 12 : start + 12 + length])
        start += 16 + length
    assert start == len(data)


FULL = """
import resource, signal, sys
from pathlib import Path
from stages.grpo.metrics import TensorBoard
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
board = TensorBoard(Path(sys.argv[1]), [])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for step in range(1, 1000):
    try:
        board.add({"step": step, "time_s": 1.0, "reward": 0.5})
    except OSError as error:
        print(error.strerror)
        break
"""


def test_a_disk_that_takes_no_more_ends_with_the_cause_and_never_waits(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "File too large\n", done.stderr


def test_continuing_on_a_full_disk_keeps_the_rows_that_are_there(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    StepLog(path, 0).append({"step": step} for step in (1, 2, 3))
    before = path.read_bytes()

    def full(self, *_, **__):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OSError, match="No space left"):
        StepLog(path, 2)
    assert path.read_bytes() == before


def test_a_log_is_equal_byte_by_byte_when_it_is_opened_again(tmp_path):
    log = StepLog(tmp_path / "log.jsonl", 0)
    log.append([{"step": 1, "prompt": "½ · 三 \x85   ü", "reward": 0.1 + 0.2}, {"step": 2, "text": "é"}])
    before = log.path.read_bytes()
    StepLog(log.path, 2)
    assert log.path.read_bytes() == before
    StepLog(log.path, 1)
    assert log.path.read_bytes() == before.splitlines(keepends=True)[0]
