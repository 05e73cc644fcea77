"""Completions that arrive one at a time: which of them a function gets together, and what each is told."""

import asyncio
import json

import pytest

from stages.base.errors import InputError
from stages.rewards.arriving import MOST, Arrived, Arriving
from stages.rewards.config import RewardConfig

SLOW = """
import time

def f(completions, solutions, prompts, level):
    open("{calls}", "a").write(f"{{len(completions)}}\\n")
    time.sleep(0.05)
    return [
        float(completion) + 100 * each + (prompt == f"p{{completion}}")
        for completion, prompt, each in zip(completions, prompts, level, strict=True)
    ]
"""
"""The value depends on the completion, on its prompt and on its row."""


def rewards_of(tmp_path, count, *functions, config=None, between=None, rows=True):
    """Score `count` completions that arrive at once, or when `between` lets them; return what each gets."""
    if rows:
        lines = (json.dumps({"level": row}) + "\n" for row in range(count))
        (tmp_path / "columns").write_text("".join(lines))
    names = tuple(f"my_rewards:{name}" for name in functions)
    config = config or RewardConfig(names, (0.5,) * len(names), None, timeout_s=20.0)

    async def run():
        paths = (str(tmp_path / name) for name in ("report", "usage", "columns"))
        arriving, tasks = Arriving(config, *paths), []
        for i in range(count):
            arrived = Arrived(f"p{i}", str(i), str(i), tokens=3, row=i, step=1 + i % 2)
            tasks.append(asyncio.create_task(arriving.reward(arrived)))
            if between is not None:
                await between(i, tasks)
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run())


def report(tmp_path):
    file = tmp_path / "report"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_what_arrives_while_a_call_runs_is_the_next_batch_and_each_gets_its_own_value(users, tmp_path):
    users(SLOW.format(calls=tmp_path / "calls"))

    async def pause(i, tasks):
        await asyncio.sleep(0.1 if i == 0 else 0)

    rewards = rewards_of(tmp_path, 30, "f", between=pause)
    assert rewards == [(0.5 * (101 * i + 1), {"my_rewards:f": 101.0 * i + 1}) for i in range(30)]
    calls = [int(line) for line in (tmp_path / "calls").read_text().split()]
    assert sum(calls) == 30 and calls[0] == 1 and len(calls) <= 4 and max(calls) >= 20
    assert report(tmp_path) == []


def test_a_batch_is_limited(users, tmp_path):
    users(SLOW.format(calls=tmp_path / "calls"))
    assert len(rewards_of(tmp_path, 2 * MOST + 5, "f")) == 2 * MOST + 5
    assert [int(line) for line in (tmp_path / "calls").read_text().split()] == [MOST, MOST, 5]


def test_only_the_completion_that_fails_counts_0_and_is_reported(users, tmp_path):
    users("def f(completions, solutions):\n    return [1 / (float(c) != 3) for c in completions]")
    rewards = rewards_of(tmp_path, 8, "f", rows=False)
    assert [value for value, _ in rewards] == [0.5] * 3 + [0.0] + [0.5] * 4
    (fault,) = report(tmp_path)
    assert fault["step"] == 2 and "ZeroDivisionError" in fault["faults"]["my_rewards:f"]


def test_a_function_that_takes_only_one_completion_is_told_of_once(users, tmp_path):
    users("def f(completions, solutions):\n    (one,) = completions\n    return [float(one)]")
    rewards = rewards_of(tmp_path, 2 * MOST, "f", rows=False)
    assert [value for value, _ in rewards] == [0.5 * i for i in range(2 * MOST)]
    (line,) = report(tmp_path)
    assert line["faults"] == {} and "ValueError" in line["single"]["my_rewards:f"]


def test_a_result_without_a_value_for_each_is_a_failure_of_all(users, tmp_path):
    users("def f(completions, solutions):\n    return []")
    assert rewards_of(tmp_path, 3, "f", rows=False) == [(0.0, {})] * 3
    assert ["returned" in line["faults"]["my_rewards:f"] for line in report(tmp_path)] == [True] * 3


def test_one_that_nobody_waits_for_any_more_harms_no_other(users, tmp_path):
    users(SLOW.format(calls=tmp_path / "calls"))

    async def cancel(i, tasks):
        if i == 5:
            await asyncio.sleep(0.01)
            tasks[2].cancel()

    rewards = rewards_of(tmp_path, 9, "f", between=cancel)
    assert isinstance(rewards.pop(2), asyncio.CancelledError)
    assert [value for value, _ in rewards] == [0.5 * (101 * i + 1) for i in range(9) if i != 2]


def test_builtin_functions_score_each_on_its_own(tmp_path):
    config = RewardConfig(("number", "answer_format"), (1.0, 0.25), None)
    rewards = rewards_of(tmp_path, 3, config=config, rows=False)
    assert rewards == [(1.0, {"number": 1.0, "answer_format": 0.0})] * 3


def test_a_function_that_cannot_be_imported_is_refused_at_once(users, tmp_path):
    users("import nothing_of_this_name\ndef f(c, s): return [1.0] * len(c)")
    with pytest.raises(InputError, match="nothing_of_this_name"):
        rewards_of(tmp_path, 1, "f", rows=False)
