import json

from stages.grpo.metrics import StepLog, read_rows


def test_resuming_drops_rows_after_the_checkpoint(tmp_path):
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


def test_a_log_is_equal_byte_by_byte_when_it_is_opened_again(tmp_path):
    log = StepLog(tmp_path / "log.jsonl", 0)
    log.append([{"step": 1, "prompt": "½ · 三 \x85   ü", "reward": 0.1 + 0.2}, {"step": 2, "text": "é"}])
    before = log.path.read_bytes()
    StepLog(log.path, 2)
    assert log.path.read_bytes() == before
    StepLog(log.path, 1)
    assert log.path.read_bytes() == before.splitlines(keepends=True)[0]
