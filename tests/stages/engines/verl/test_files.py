"""Files that verl and its workers write: one JSON object per line, characters not escaped."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from pipeline.config.load import load
from stages.base.errors import InputError
from stages.engines import scoring
from stages.engines.verl import agent, results, rewards
from stages.engines.verl.job import TRAIN_DATA, Job, Paths
from stages.rewards.planned_code import VARIABLE
from tests.stages.fetch.settings import context, write_lines

OVERRIDES = [
    "experiment=verl_7b", "model.path=/models/m", "train.prompts_per_step=8", "rollout.num_generations=4",
    "layout=dp4_mp1_pp1", "engine.mini_batch_size=null", "reward.max_failures=2",
]  # fmt: skip


def test_completions_may_contain_unicode_line_separators(tmp_path):
    source, target = tmp_path / "rollouts", tmp_path / "completions.jsonl"
    source.mkdir()
    texts = ["a\u2028b", "c\x85d\u2029", "e\nf\r", "\x1c"]
    rows = [{"input": "?", "output": text, "gts": "1", "score": 0.5} for text in texts]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (source / "1.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    train = load(["experiment=verl_7b", "model.path=/m", "train.steps=1", "train.completions_every=1"]).train
    results.write_completions(source, target, train)
    entries = [json.loads(line) for line in target.read_text(encoding="utf-8").split("\n")[:-1]]
    assert [entry["completion"] for entry in entries] == texts[: train.logged_completions]
    assert {entry["step"] for entry in entries} == {1}


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"input": "?"}', b'"x"', b"\xff", b"[" * 100_000])
def test_malformed_completions_are_left_out(tmp_path, line):
    good = json.dumps({"input": "?", "output": "5", "gts": "1", "score": 0.5}).encode()
    source, target = tmp_path / "rollouts", tmp_path / "completions.jsonl"
    source.mkdir()
    (source / "1.jsonl").write_bytes(line + b"\n" + good + b"\n" + good[:9])
    train = load(["experiment=verl_7b", "model.path=/m", "train.steps=1", "train.completions_every=1"]).train
    assert results.write_completions(source, target, train) == [f"{source}/1.jsonl:1"]
    assert [json.loads(row)["completion"] for row in target.read_text().splitlines()] == ["5"]


def test_saved_steps_without_metrics_are_found(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert results.unrecorded_steps(file, 0) == []
    file.write_text("".join(json.dumps({"step": step, "loss": 0.5}) + "\n" for step in (1, 2, 4)))
    assert results.unrecorded_steps(file, 4) == [3]
    assert results.unrecorded_steps(file, 5) == [3, 5]


def write(report, *steps):
    lines = [
        json.dumps({"step": step, "faults": {"maths": f"failed in {step}"}, "late": []}) for step in steps
    ]
    report.write_text("".join(f"{line}\n" for line in lines))


def test_a_step_with_too_many_failures_is_refused(tmp_path):
    report, run = tmp_path / scoring.REPORT, Job.from_run(load(OVERRIDES))
    scoring.check_steps(report, run.reward, run.samples)
    write(report, 1, 1, 2, 3, 3)
    scoring.check_steps(report, run.reward, run.samples)  # five failures, but not more than two in any step
    write(report, 1, 2, 1, 2, 2)
    with report.open("a") as file:
        file.write('{"step": 2, "fau')  # by a worker that was killed
    with pytest.raises(InputError, match=r"failed for 3 of 32 completions of step 2.*: failed in 2"):
        scoring.check_steps(report, run.reward, run.samples)


BASE = """
class RewardManagerBase:
    def __init__(self, config, tokenizer, compute_score):
        self.tokenizer = tokenizer
"""
SCORE = """
import asyncio, json, sys
from types import SimpleNamespace
sys.path.insert(0, ".")
import numpy as np
from rewards import Rewards

SPECIAL = {1: "<|end|>", 2: "<think>", 3: "</think>"}

class Tokenizer:
    added_tokens_decoder = {id: SimpleNamespace(content=text, special=True) for id, text in SPECIAL.items()}

    def decode(self, ids, skip_special_tokens):
        return " ".join(SPECIAL.get(id, str(id)) for id in ids)

def item(index, split="train"):
    mask = np.array([1] * 7 + [0])
    responses, prompts = np.array([7, 3, index + 4, 0]), np.array([1, 8, 9, 2])
    batch = {"responses": responses, "attention_mask": mask, "prompts": prompts}
    info = {"index": index, "split": split}
    fields = {"reward_model": {"ground_truth": "3"}, "global_steps": 1, "extra_info": info}
    return SimpleNamespace(batch=batch, non_tensor_batch=fields)

async def main():
    manager = Rewards({}, Tokenizer(), None)
    done = [manager.run_single([item(index)]) for index in range(3)]
    print(json.dumps([reward["reward_score"] for reward in await asyncio.gather(*done)]))
    turns = item(1)  # 4: the last turn; 3 was returned by a function
    turns.batch["responses"] = np.array([7, 3, 4, 0])
    fields = {"grpoflow_turn_start": 2, "grpoflow_tool_calls": 2, "grpoflow_tool_failures": 1}
    turns.non_tensor_batch["tool_extra_fields"] = fields
    print(json.dumps((await manager.run_single([turns]))["reward_score"]))
    held_out = item(0, "validation")
    held_out.non_tensor_batch["tool_extra_fields"] = fields
    for truth in ("4", "5"):  # the answer is 4
        held_out.non_tensor_batch["reward_model"]["ground_truth"] = truth
        print(json.dumps(await manager.run_single([held_out])))

asyncio.run(main())
"""
USER = """
def f(completions, solutions, prompts, level):
    print(len(completions), file=open("calls", "a"))
    return [reward(*each) for each in zip(completions, prompts, level, strict=True)]

def reward(completion, prompt, level):
    if completion.startswith("4"):
        assert (completion, prompt) == ("4", "8 9 <think>7 </think>"), (completion, prompt)
        return 3.0
    assert completion.startswith("<think>7 </think> "), completion
    assert prompt == "8 9 <think>", prompt
    return level + 0.5 if level != 30 else [][0]
"""


def score_three(tmp_path, monkeypatch):
    """Score completions with the rendered files. verl's class is replaced; tests/upstream runs it."""
    package = tmp_path / "verl/experimental/reward_loop/reward_manager"
    package.mkdir(parents=True)
    (package / "base.py").write_text(BASE)
    (tmp_path / "users_reward.py").write_text(USER)
    monkeypatch.chdir(tmp_path)
    overrides = ["reward.functions=[users_reward:f]", "reward.weights=[2.0]", "rollout.agent=mine:Agent"]
    job = Job.from_run(load([*OVERRIDES, *overrides]))
    (tmp_path / scoring.COLUMNS).write_text("".join(f'{{"level": {level}}}\n' for level in (10, 20, 30)))
    for name, text in rewards.files(job, Paths(tmp_path, tmp_path)).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "configs/score.py").write_text(SCORE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "score.py"],
        cwd=tmp_path / "configs",
        env=environment,
        capture_output=True,
        text=True,
    )


def test_functions_get_prompt_and_columns_of_each_completion(tmp_path, monkeypatch):
    done = score_three(tmp_path, monkeypatch)
    scores, turns, right, wrong = map(json.loads, done.stdout.splitlines())
    assert scores == [21.0, 41.0, 0.0], done.stderr
    assert turns == 6.0
    (counted,) = (tmp_path / agent.CALLS).read_text().splitlines()  # none of held-out answers
    assert json.loads(counted) == {"step": 1, "calls": 2, "failed": 1}
    # held-out answers are compared with the ground truth, and no function of the user sees them
    assert right == {"reward_score": 1.0, "reward_extra_info": {"acc": 1.0}}
    assert wrong == {"reward_score": 0.0, "reward_extra_info": {"acc": 0.0}}
    (line,) = (tmp_path / scoring.REPORT).read_text().splitlines()
    assert "IndexError" in json.loads(line)["faults"]["users_reward:f"]
    calls = (tmp_path / "configs/calls").read_text().split()
    assert calls[0] == "3" and calls[-1] == "1"  # what arrived at once, and the completion of two turns


@pytest.mark.parametrize("is_changed", [False, True])
def test_functions_are_imported_as_they_were_planned(tmp_path, monkeypatch, is_changed):
    file = tmp_path / "users_reward.py"
    digest = hashlib.sha256((USER + "#" * is_changed).encode()).hexdigest()
    specification = tmp_path / "spec.json"
    specification.write_text(json.dumps({"code": {"users_reward": [str(file), digest]}}))
    monkeypatch.setenv(VARIABLE, str(specification))
    made = context(tmp_path, "grpo", {})
    scoring.write_code(made)
    (made.work / scoring.CODE).replace(tmp_path / scoring.CODE)
    monkeypatch.delenv(VARIABLE)
    done = score_three(tmp_path, monkeypatch)
    assert done.returncode == is_changed
    assert ("users_reward.py: has been changed" in done.stderr) is is_changed


def test_columns_are_written_for_each_row_of_the_training_data(tmp_path):
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    fetched, tokenized = tmp_path / "fetched", tmp_path / "tokenized"
    for directory in (fetched, tokenized):
        directory.mkdir()
    rows = [{"question": f"q{n}", "answer": f"#### {n}", "level": n} for n in range(3)]
    write_lines(fetched / "train.jsonl", *rows)
    write_lines(fetched / "test.jsonl", *rows)
    parquet.write_table(
        arrow.Table.from_pylist([{"prompt": row["question"]} for row in rows]), tokenized / TRAIN_DATA
    )
    for functions, written in (("accuracy", None), ("mine:f", [0, 1, 2])):
        overrides = ["dataset=gsm8k", f"reward.functions=[{functions}]", "reward.weights=[1.0]"]
        config = load([*OVERRIDES, *overrides]).plain()
        made = context(tmp_path / functions, "grpo", config, fetch_dataset=fetched, tokenize=tokenized)
        scoring.write_columns(made, Job.from_config(made.config).reward, tokenized / TRAIN_DATA)
        file = made.work / scoring.COLUMNS
        levels = (
            [json.loads(line)["level"] for line in file.read_text().splitlines()] if file.exists() else None
        )
        assert levels == written
