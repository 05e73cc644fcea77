import json

import pytest

from stages.engines.mindspeed_rl.watch import TrainWatcher
from stages.engines.outside import Watcher
from tests.stages.engines.mindspeed_rl.jobs import job_of
from tests.stages.engines.mindspeed_rl.test_samples import lines

JOB = job_of("model=qwen2_5_7b", "layout=dp4_mp2_pp2", "train.logged_completions=1")


def rows(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def said(step):
    return f"(train pid=7) iteration: {step} / 500 | grpo/score/mean : 0.5000 | response_length/mean : 9.0 "


def test_a_line_that_ray_says_twice_counts_once(logs, tmp_path):
    told: list[str] = []
    watcher = TrainWatcher(
        logs, tmp_path, JOB, lambda step, total, text: told.append(f"{step}/{total} {text}")
    )
    watcher.poll()
    (logs / "worker_0.log").write_text(f"{said(1)}\n{said(1)}\n{said(2)}\n{said(3)}")  # the last is not whole
    watcher.poll()
    assert told == ["1/500 reward 0.500, length 9.000", "2/500 reward 0.500, length 9.000"]
    assert [row["step"] for row in rows(tmp_path / "metrics.jsonl")] == [1, 2]
    assert watcher.silence_timeout_s == 7200.0


def test_a_run_that_goes_on_writes_its_steps_anew(logs, tmp_path):
    for name in ("metrics.jsonl", "completions.jsonl"):
        (tmp_path / name).write_text("".join(f'{{"step": {step}, "old": true}}\n' for step in (1, 2, 3)))
    watcher = TrainWatcher(logs, tmp_path, JOB, lambda *_: None)
    spoken = [*lines(7, "a", "b", "c"), *lines(8, "a", "d", "c"), said(3)]
    (logs / "worker_0.log").write_text("".join(f"{line}\n" for line in spoken))
    watcher.poll(ended=True)
    metrics, drawn = rows(tmp_path / "metrics.jsonl"), rows(tmp_path / "completions.jsonl")
    assert [(row["step"], "old" in row) for row in metrics] == [(1, True), (2, True), (3, False)]
    assert [row.get("completion") for row in drawn] == [None, None, "b"]  # as many as were asked for


def test_a_program_without_steps_shows_its_last_line(logs):
    told: list[str] = []
    watcher = Watcher(logs / "start.log", JOB.engine, lambda _step, _total, text: told.append(text))
    (logs / "start.log").write_text(f"loading\n\n{'x' * 500}\n")
    watcher.poll()
    assert told == ["loading", "x" * 160]
