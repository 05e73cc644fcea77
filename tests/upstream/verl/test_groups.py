"""Which groups verl trains on: those whose rewards differ (DAPO), and those that are not too old.

verl's own replay buffer gets groups with known rewards and versions, and a training's losses are compared
with plain torch.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.engines.verl import files
from stages.engines.verl.job import RECIPE, Job, Paths
from stages.rewards.arriving import MOST
from tests.upstream.programs import ask
from tests.upstream.verl.product import (
    BETA,
    EPOCHS,
    GENERATIONS,
    LEARNING_RATE,
    MAX_TOKENS,
    PROMPTS,
    STEPS,
)

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
HERE = Path(__file__).parent
DIFFERENT, NONE, ALL = [0.0, 1.0, 0.0, 1.0], [0.0] * 4, [1.0] * 4
CPU = ("engine=verl", "engine.device=cpu", "model=tiny_qwen3", "layout=dp1_mp1_pp1")


def sampled(python, tmp_path, overrides, cases):
    """Return what verl's buffer answers to each case: changes, groups, further ones, step and batch."""
    job = Job.from_run(load([*CPU, *overrides]))
    text = files.text(job, Paths(tmp_path, tmp_path / "train.parquet"))
    (tmp_path / f"{RECIPE}.yaml").write_text(text)
    names = ("changes", "groups", "further", "step", "batch")
    request = {"configs": str(tmp_path), "name": RECIPE}
    request["cases"] = [dict(zip(names, case, strict=True)) for case in cases]
    return ask(python, HERE / "groups.py", request)


@pytest.mark.core
def test_groups_with_equal_rewards_are_replaced_and_mutants_are_noticed(interpreter, tmp_path):
    """Of four groups, two are of no use; of the four that replace them, one."""
    groups = [(3, rewards) for rewards in (DIFFERENT, NONE, DIFFERENT, ALL)]
    further = [(3, rewards) for rewards in (DIFFERENT, ALL, DIFFERENT, DIFFERENT)]
    metric = "algorithm.filter_groups.metric"
    changes = [{}, {"algorithm.filter_groups.enable": False}, {metric: "acc"}, {metric: None}]
    # not all are of use: a metric that is constant would leave out every group
    overrides = ("train.resample_rounds=1", "train.prompts_per_step=4", "rollout.num_generations=4")
    cases = [(change, groups, further, 3, 4) for change in changes]
    right, off, absent, unset = sampled(interpreter("verl"), tmp_path, overrides, cases)
    assert len(right["chosen"]) == 4 and {*right["chosen"]} <= {0, 2, 4, 6, 7}
    assert {1, 3, 5} <= {*right["evicted"]} and len(right["evicted"]) == 4 == right["asked"]
    counts = {"evicted_samples": 3, "discarded_surplus_samples": 1}
    assert right["metrics"] == {f"training/filter_groups/{name}": count for name, count in counts.items()}
    assert off["chosen"] == [0, 1, 2, 3] and off["metrics"] == {}
    assert "missing DAPO metric 'acc'" in absent["error"]
    assert "metric must be set" in unset["error"]


@pytest.mark.core
def test_completions_that_are_too_old_are_replaced_and_mutants_are_noticed(interpreter, tmp_path):
    """With engine.staleness=2, step 9 trains on weights of the versions that step 7 to 9 begin with."""
    groups = [(step, DIFFERENT) for step in (4, 5, 6, 7, 8, 9, 9)]
    further = [(9, DIFFERENT)] * 9
    sampler = "trainer.v1.sampler.max_off_policy_"
    changes = [
        {},
        *({f"{sampler}threshold": value} for value in (2, 4, None)),
        {f"{sampler}strategy": "wait"},
    ]
    overrides = ("engine.mode=fully_async", "engine.staleness=2", "train.prompts_per_step=4")
    cases = [(change, groups, further, 9, 4) for change in changes]
    right, less, more, unlimited, waiting = sampled(interpreter("verl"), tmp_path, overrides, cases)
    assert right["evicted"] == [0, 1, 2] and right["asked"] == 3
    assert right["chosen"][:2] == [3, 4]  # the older ones first
    assert right["metrics"]["training/off_policy/evicted_samples"] == 3
    for mutant in (less, more, unlimited, waiting):
        assert mutant["evicted"] != right["evicted"]
    assert less["evicted"] == [0, 1, 2, 3] and more["evicted"] == [0, 1]


REWARD = '''"""Rewards that are equal in some groups of a random model; each call is recorded."""

import json
import sys
import time


def first(completions, solutions, prompts):
    values = [float(text[:1].isdigit()) for text in completions]
    with open({record!r}, "a") as file:
        file.write(json.dumps([sys.prefix, *zip(prompts, completions, values)]) + "\\n")
    time.sleep({pause})
    return values
'''
DAPO = ("train.loss_type=dapo", "train.epsilon_high=0.28", "reward.functions=[digit_reward:first]")


def train(verl, directory, *overrides, pause):
    """Return a run with rewards of 0 or 1, and verl's calls of the reward function.

    `pause`: seconds of a call. grpoflow tries the function before the run, in another interpreter.
    """
    directory.mkdir()
    record = directory / "calls.jsonl"
    (directory / "digit_reward.py").write_text(REWARD.format(record=str(record), pause=pause))
    made = verl.train(directory, *DAPO, *overrides)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    home = verl.python.parents[1].resolve()
    return made, [rows for prefix, *rows in lines if Path(prefix).resolve() == home]


def groups_of(rows):
    """Return the rewards of each prompt's group."""
    groups = defaultdict(list)
    for prompt, _, reward in rows:
        groups[prompt].append(reward)
    return groups


def are_equal(rewards):
    return len({*rewards}) == 1


def test_only_groups_whose_rewards_differ_are_trained_on_as_in_plain_torch(verl, tmp_path):
    """The losses are those of plain torch; without the filter the same groups reach the update."""
    made, calls = train(verl, tmp_path / "filtered", "train.resample_rounds=1", pause=0.05)
    assert 1 < max(map(len, calls)) <= MOST  # what arrived while the call before was running
    scored = [tuple(row) for call in calls for row in call]
    sampled = groups_of(scored)
    assert {len(rewards) for rewards in sampled.values()} == {GENERATIONS}  # each prompt was asked once
    useless = {prompt for prompt, rewards in sampled.items() if are_equal(rewards)}
    steps = made.completions()
    for step in steps:
        trained = groups_of(step)
        assert len(trained) == PROMPTS and not useless & trained.keys()
        assert all(len(rewards) == GENERATIONS and not are_equal(rewards) for rewards in trained.values())
    assert not Counter(row for step in steps for row in step) - Counter(scored)
    assert useless and len(sampled) > STEPS * PROMPTS
    metrics = [json.loads(line) for line in (made.grpo / "metrics.jsonl").read_text().splitlines()]
    assert sum(row["sampled_groups"] for row in metrics) == len(sampled)
    evicted = [row.get("training/filter_groups/evicted_samples", 0) for row in made.metrics()]
    assert sum(evicted) == len(useless)

    request = {"artifact": str(made.grpo), "model": str(verl.data / "model"), "algorithm": "dapo"}
    request |= {"learning_rate": LEARNING_RATE, "steps": STEPS, "epochs": EPOCHS, "max_tokens": MAX_TOKENS}
    expected = ask(verl.python, HERE / "oracle.py", {**request, "beta": BETA})
    names = {
        "loss": "actor/pg_loss",
        "kl": "actor/kl_loss",
        "norm": "actor/grad_norm",
        "reward": "critic/score/mean",
    }
    for row, step in zip(made.metrics(), expected["steps"], strict=True):
        measured = {ours: row[theirs] for ours, theirs in names.items()}
        assert measured == pytest.approx({name: step[name] for name in names}, rel=2e-5, abs=1e-6)
    assert expected["difference"] < 5e-5 < 1e-2 < expected["moved"]

    unfiltered = ("train.resample_rounds=0", "train.steps=2")
    mutant, calls = train(verl, tmp_path / "unfiltered", *unfiltered, pause=0)
    assert sum(map(len, calls)) == 2 * PROMPTS * GENERATIONS
    trained = [groups_of(step) for step in mutant.completions()[:2]]
    assert [len(step) for step in trained] == [PROMPTS] * 2
    assert any(are_equal(rewards) for step in trained for rewards in step.values())
