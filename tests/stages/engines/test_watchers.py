"""Logs that no reader knows: malformed and half-written lines never end a run, and cost no other step."""

import json

import pytest

from pipeline.config.load import load
from stages.engines.mindformers import stage as mindformers
from stages.engines.mindrlhf import stage as mindrlhf
from stages.engines.mindspeed_rl import train as mindspeed_rl
from stages.engines.outside import START_FILE
from stages.engines.verl import train as verl
from tests.stages.engines.mindrlhf.test_logs import NEW

MANY = "9" * 5000
"""More digits than int() accepts."""
CPU = "rollout.num_generations=4 train.prompts_per_step=8 engine.mini_batch_size=null"


def verls(step):
    return json.dumps({"step": step, "data": {"actor/pg_loss": 0.5}})


def mindspeeds(step):
    return f"(train pid=7) iteration: {step} / 500 | grpo/score/mean : 0.5000 | e2e_tps : 8.0000 "


def mindformers_(step):
    return f"{{ Epoch:[  1/  1], step:[{step}/  9], loss: 0.5, per_step_time: 10ms, lr: 1e-06"


def mindrlhfs(step):
    return "\n".join([NEW[0], f"epoch: 0, step: {step - 1} start", *NEW[2:]])


ENGINES = {
    "verl": (
        verl, f"experiment=verl_7b model.path=/m layout=dp4_mp1_pp1 {CPU}", "metrics.jsonl", verls,
        ["{", "[]", "7", "null", "{}", '{"step": 1}', '{"step": "x", "data": {}}', '{"step": 1, "data": 3}',
         '{"step": 1e999, "data": {}}', '{"step": 1, "data": {"actor/pg_loss": "x"}}', "[" * 100_000,
         "\0" * 9],
    ),
    "mindspeed_rl": (
        mindspeed_rl, "engine=mindspeed_rl model=qwen2_5_7b layout=dp4_mp2_pp2", "worker_0.log", mindspeeds,
        [f"(train pid=7) iteration: 1 / {MANY} | grpo/score/mean : 1.0 "],
    ),
    "mindformers": (
        mindformers, "engine=mindrlhf engine.sft=mindformers model=qwen2_5_7b layout=dp1_mp4_pp2",
        "worker_7.log", mindformers_, [mindformers_(MANY), mindformers_(1).replace("10ms", f"{MANY}ms")],
    ),
    "mindrlhf": (
        mindrlhf, "engine=mindrlhf model=qwen2_5_7b layout=dp1_mp4_pp2", "worker_7.log", mindrlhfs,
        [f"Start training epoch num:{MANY}, step num:1,", f"epoch: {MANY}, step: 3 start"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ENGINES))
def test_malformed_lines_are_counted_and_half_written_ones_are_read_when_they_are_complete(name, tmp_path):
    module, overrides, file, line, junk = ENGINES[name]
    logs, work, shown = tmp_path / "logs", tmp_path / "work", []
    logs.mkdir()
    work.mkdir()
    (work / START_FILE).write_text('{"steps": 9}')
    config = load(overrides.split()).plain()
    watcher = module.watch(config, logs, work, lambda step, total, message: shown.append(step))
    log = logs / file

    def add(text):
        with log.open("a") as stream:
            stream.write(text)
        watcher.poll()

    add(line(1) + "\n")
    for each in junk:
        add(each + "\n")
    first = watcher.take_warnings()
    second = line(2) + "\n"
    for start in range(0, len(second), 7):
        add(second[start : start + 7])
    rows = [json.loads(row) for row in (work / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == shown == [1, 2]
    assert len(first) == 1 and first[0].startswith(f"{log}: ")
    count = [f"{log}: {len(junk)} lines were malformed and left out"] if len(junk) > 1 else []
    assert watcher.take_warnings(ended=True) == count


def test_a_log_that_cannot_be_read_is_read_later(tmp_path):
    (tmp_path / "work").mkdir()
    _, overrides, file, *_ = ENGINES["verl"]
    watcher = verl.watch(load(overrides.split()).plain(), tmp_path, tmp_path / "work", lambda *_: None)
    log = tmp_path / file
    log.mkdir()  # open() fails, as on a file server that does not answer
    for _ in range(2):
        watcher.poll()
    log.rmdir()
    log.write_text(verls(1) + "\n")
    watcher.poll()
    assert len((tmp_path / "work" / "metrics.jsonl").read_text().splitlines()) == 1
    (warning,) = watcher.take_warnings(ended=True)
    assert warning.startswith(f"{log}: can't be read")
