"""Lines as both versions write them, put together from their format strings."""

import json

import pytest

from stages.engines.mindrlhf.logs import NAMES, LogReader, Watcher
from stages.grpo.metrics import OUTSIDE, SCHEMA
from tests.stages.engines.mindrlhf.jobs import job_of

STAMP = "2025-08-08 10:00:00,123 - mindformers./output/log[x.py:1] - INFO - "
METRICS = "{'reward_mean': 0.5, 'reward_max': 1.0, 'response_length_mean': 100.25, 'prompt_length_max': 9}"
NEW = [
    "Start training epoch num:2, step num:10, generation num:8",
    "epoch: 1, step: 3 start",
    "Metrics of total step 4: {'reward_mean': 0.5}",
    f"total step 4 metrics: {METRICS}",
    "loss: 0.5 | lr: [1e-06] | is overflow: False | loss scale: 1.0 | grad norm: 2.0",
    "loss: 1.5 | lr: [2e-06] | is overflow: True | loss scale: 1.0 | grad norm: 4.0",
    "step processed tokens 800.0, tokens/s/p 50.0",
    "total processed tokens 800.0, total tokens/s/p 50.0",
]


def read(lines, workers=8):
    reader = LogReader(workers)
    return reader, [row for line in lines if (row := reader.read(STAMP + line))]


def test_a_step_becomes_a_row():
    reader, rows = read(NEW)
    assert rows == [
        {
            "step": 14, "reward": 0.5, "reward_max": 1.0, "completion_length": 100.25,
            "tokens_per_s": 400.0, "step_s": 2.0,
            "loss": 1.0, "lr": 2e-06, "grad_norm": 3.0, "overflow": 0.5, "updates": 2.0,
        }
    ]  # fmt: skip
    assert reader.total == 20
    assert {*rows[0], *NAMES.values()} <= SCHEMA.keys() | OUTSIDE.keys()


def test_the_older_version_has_no_gradient_norm():
    lines = [*NEW[:2], " loss: [-0.125] | lr: 1e-06 | is overflow: 0 | loss scale: 4096.0", NEW[-2]]
    _, (row,) = read(lines)
    assert row["loss"] == -0.125 and "grad_norm" not in row and row["overflow"] == 0.0


def test_numbers_of_numpy_2_are_numbers_too():
    _, (row,) = read([*NEW[:2], "total step 0 metrics: {'reward_mean': np.float32(0.75)}", NEW[-2]])
    assert row["reward"] == 0.75


def write(path, lines):
    with path.open("a") as file:
        file.writelines(STAMP + line + "\n" for line in lines)


def saved_completions(directory):
    """Write a file of completions; return the log lines of a step that names it."""
    saved = directory / "prompt_completions_step_3.json"
    row = {"question": "q", "answer": "a", "solution": "$1$", "reward": 1.0, "completion_length": 3}
    saved.write_text(json.dumps([row]))
    return [*NEW[:2], f"Saved data to {saved}", *NEW[2:]]


def written(directory, name="metrics.jsonl"):
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


@pytest.mark.parametrize(("every", "count"), [(7, 1), (5, 0)])
def test_the_loss_of_a_pipeline_is_the_last_stages(tmp_path, every, count):
    job = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"train.completions_every={every}")
    output: list[tuple[float, float]] = []
    watcher = Watcher(tmp_path, tmp_path, job, lambda step, total, _: output.append((step, total)))
    write(tmp_path / "worker_0.log", saved_completions(tmp_path))
    write(tmp_path / "worker_7.log", NEW[:1])
    watcher.poll()
    assert output == []  # the last stage has not finished a step
    second = [line.replace("loss: 0.5", "loss: 7.0").replace("loss: 1.5", "loss: 9.0") for line in NEW]
    write(tmp_path / "worker_7.log", second)
    watcher.poll()
    (row,) = written(tmp_path)
    assert row["loss"] == 8.0 and row["reward"] == 0.5 and output == [(14, 20)]
    assert (
        written(tmp_path, "completions.jsonl")
        == [{"step": 14, "prompt": "q", "completion": "a", "solution": "1", "reward": 1.0, "length": 3}]
        * count
    )


@pytest.mark.parametrize("content", ["", "[{", "{}", "7", '[{"question": "q"}]', '[{"solution": 1}]', None])
def test_malformed_completions_become_a_warning_and_cost_no_step(tmp_path, content):
    lines = saved_completions(tmp_path)
    (saved,) = tmp_path.glob("prompt_completions_*.json")
    saved.unlink() if content is None else saved.write_text(content)
    job = job_of("model=qwen2_5_7b", "layout=dp8_mp1_pp1", "train.completions_every=1")
    watcher = Watcher(tmp_path, tmp_path, job, lambda *_: None)
    write(tmp_path / "worker_0.log", lines)
    watcher.poll()
    assert len(written(tmp_path)) == 1 and written(tmp_path, "completions.jsonl") == []
    assert [str(saved) in warning for warning in watcher.take_warnings()] == [True] * (content is not None)


def test_a_run_requeued_by_slurm_replaces_the_steps_that_it_repeats(tmp_path):
    job = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
    watcher = Watcher(tmp_path, tmp_path, job, lambda *_: None)

    def lines(steps, loss):
        made = [(f"epoch: 0, step: {n} start", NEW[4].replace("loss: 0.5", f"loss: {loss}")) for n in steps]
        return [NEW[0], *(line for begin, update in made for line in (begin, update, NEW[-2]))]

    write(tmp_path / "worker_0.log", lines([0, 1, 2, 3], "1"))
    write(tmp_path / "worker_7.log", lines([0, 1, 2, 3, 4], "2"))  # one step ahead when they were ended
    watcher.poll()
    (tmp_path / "earlier").mkdir()
    for name in ("worker_0.log", "worker_7.log"):
        (tmp_path / name).rename(tmp_path / "earlier" / name)
    watcher.poll()
    write(tmp_path / "worker_0.log", lines([2, 3, 4], "3"))
    write(tmp_path / "worker_7.log", lines([2, 3], "4"))
    watcher.poll()
    write(tmp_path / "worker_7.log", lines([4], "5")[1:])
    watcher.poll()
    rows = [(row["step"], row["loss"]) for row in written(tmp_path)]
    assert rows == [(1, 2.0), (2, 2.0), (3, 4.0), (4, 4.0), (5, 5.0)]
