"""Metrics and completions that verl writes: one JSON object per line, characters not escaped."""

import json

from pipeline.config.load import load
from stages.engines.verl import metrics


def test_completions_may_contain_unicode_line_separators(tmp_path):
    source, target = tmp_path / "rollouts", tmp_path / "completions.jsonl"
    source.mkdir()
    texts = ["a\u2028b", "c\x85d\u2029", "e\nf\r", "\x1c"]
    rows = [{"input": "?", "output": text, "gts": "1", "score": 0.5} for text in texts]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (source / "1.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    train = load(["experiment=verl_7b", "model.path=/m", "train.steps=1", "train.completions_every=1"]).train
    metrics.write_completions(source, target, train)
    entries = [json.loads(line) for line in target.read_text(encoding="utf-8").split("\n")[:-1]]
    assert [entry["completion"] for entry in entries] == texts[: train.logged_completions]
    assert {entry["step"] for entry in entries} == {1}


def test_saved_steps_without_metrics_are_found(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert metrics.unrecorded(file, 0) == []
    file.write_text("".join(json.dumps({"step": step, "loss": 0.5}) + "\n" for step in (1, 2, 4)))
    assert metrics.unrecorded(file, 4) == [3]
    assert metrics.unrecorded(file, 5) == [3, 5]
