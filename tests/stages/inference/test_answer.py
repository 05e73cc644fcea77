"""The program that runs in vLLM's interpreter, with a vLLM that computes nothing."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pipeline.config.load import defaults
from stages.inference.evaluate import PROGRAM, batches

FAKE = Path(__file__).parents[2] / "data" / "fake_vllm"
PROMPTS = [[1, 2, 3 + row] for row in range(10)]
EVALUATE = replace(defaults().evaluate, batch_prompts=4, sample_prompts=3, num_samples=2, k=2)


@pytest.fixture
def job(tmp_path):
    (tmp_path / "prompts.jsonl").write_text("".join(f"{ids}\n" for ids in PROMPTS))
    (tmp_path / "answers").mkdir()
    return {
        "arguments": {"tensor_parallel_size": 1}, "sampling": {"max_tokens": 8, "stop_token_ids": [9]},
        "drawing": {"temperature": 0.7}, "seed": 5, "replicas": 1, "memory_share": None, "card_share": 0.9,
        "cache_bytes": 1 << 20, "models": {"before": "/m/before", "after": "/m/after"},
        "prompts": str(tmp_path / "prompts.jsonl"), "answers": str(tmp_path / "answers"),
        "batches": {batch.name: asdict(batch) for batch in batches(len(PROMPTS), EVALUATE)},
    }  # fmt: skip


def run(directory, job, first=0, cards=1, **variables):
    """Run one machine's part; return its exit code, and the recorded calls of vLLM."""
    file, calls = directory / "job.json", directory / "calls"
    file.write_text(json.dumps(job))
    calls.write_text("")
    environment = {
        **os.environ, "PYTHONPATH": str(FAKE), "GRPOFLOW_LOG_DIR": str(directory),
        "FAKE_VLLM_CALLS": str(calls), "GRPOFLOW_FIRST_WORKER": str(first),
        "GRPOFLOW_WORKERS": str(cards), **variables,
    }  # fmt: skip
    command = [sys.executable, str(PROGRAM), str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    logs = "".join(log.read_text() for log in directory.glob("worker_*.log"))
    assert done.returncode == 0 or "FAKE_VLLM_DIES" in variables, done.stdout + done.stderr + logs
    return done, calls.read_text().splitlines()


def answers(job):
    """Return the content of all files of answers."""
    return {path.name: path.read_text() for path in Path(job["answers"]).glob("*-*.jsonl")}


def test_models_answer_one_after_the_other_and_prompts_stay_in_order(tmp_path, job):
    _, calls = run(tmp_path, job)
    assert [call.split()[0] for call in calls] == ["before"] * 5 + ["after"] * 5
    made = answers(job)
    greedy = [
        json.loads(line)
        for name in ("greedy-000000-000004", "greedy-000004-000008", "greedy-000008-000010")
        for line in made[f"before-{name}.jsonl"].splitlines()
    ]
    assert greedy == [[*ids[::-1], 9] for ids in PROMPTS]
    sampled = made["after-sampled-000000-000002.jsonl"].splitlines()
    assert len(sampled) == 4 and len(set(sampled)) == 4  # each with a seed of its own
    (facts,) = (tmp_path / "answers" / "program.jsonl").read_text().splitlines()
    assert json.loads(facts) == {"name": "vllm", "version": "0.0.fake", "dtype": "float32", "device": "cpu"}


@pytest.mark.parametrize("machines", [1, 2])
def test_answers_do_not_depend_on_the_number_of_replicas(tmp_path, job, machines):
    run(tmp_path, job)
    alone = answers(job)
    (tmp_path / "other").mkdir()
    shared = {**job, "replicas": 2, "answers": str(tmp_path / "other")}
    calls = []
    for machine in range(machines):
        calls += run(tmp_path, shared, first=machine, cards=2 // machines)[1]
    assert answers(shared) == alone and len(calls) == 10
    if machines == 1:  # each has its own card, and its own core where there are two
        assert {call.split()[2] for call in calls} == {"0", "1"}


def test_finished_batches_are_not_repeated(tmp_path, job):
    run(tmp_path, job)
    whole = answers(job)
    for file in Path(job["answers"]).glob("*"):
        file.unlink()
    done, first = run(tmp_path, job, FAKE_VLLM_DIES="3")
    assert done.returncode == 137 and "worker_0.log" in done.stdout
    assert len(first) == len(answers(job)) == 3
    _, second = run(tmp_path, job)
    assert len(second) == 7 and answers(job) == whole
    assert run(tmp_path, job)[1] == []  # no model is opened


def test_replicas_of_several_cards_get_neighbours(tmp_path, job):
    arguments = {"tensor_parallel_size": 2}
    shared = {**job, "replicas": 2, "arguments": arguments}
    _, calls = run(tmp_path, shared, cards=4, ASCEND_RT_VISIBLE_DEVICES="4,5,6,7")
    assert {call.split()[2] for call in calls} == {"4,5", "6,7"}
