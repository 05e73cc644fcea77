import importlib.util
import json
import subprocess
import sys

import pytest

from stages.grpo.metrics import StepLog, read_rows


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
