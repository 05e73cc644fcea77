"""Rewards in an engine's interpreter, which has none of grpoflow's packages.

It imports copies of stages/base and stages/rewards, which need nothing but annotated-types, and the user's
functions from their directories. Rewards that a function fails for are reported in a file, because programs
that call a reward function catch its errors, and would go on with a reward of 0.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from stages.base.context import Context
from stages.fetch.records import count_rows
from stages.grpo.columns import dataset_columns
from stages.grpo.metrics import read_rows
from stages.rewards.config import BUILTIN, RewardConfig, reads_columns
from stages.rewards.planned_code import VARIABLE
from stages.rewards.process import Accepted
from stages.rewards.score import Columns, check_failures
from stages.rewards.user_code import directory_of

STAGES = Path(__file__).parents[1]
MODULES = {
    "": "own_packages",
    "base": "__init__ bounds errors identity reader redact tags",
    "rewards": "__init__ arriving child code code_sandbox config functions judge knights length maths "
    "messages number planned_code process score",
}
"""The copied modules of each package."""
COPIES = "scoring"
"""Directory of the copies, in the work directory."""
REPORT = "reward_failures.jsonl"
"""File below the work directory with a line for each completion that a reward function failed for."""
USAGE = "reward_usage.jsonl"
"""File below the work directory with a line for each completion that the reward judge was asked about."""
CODE = "planned_code.json"
"""File below the work directory with the user's modules and their digests, see planned_code.py."""
COLUMNS = "columns.jsonl"
"""File below the work directory with the columns of each training row; only for the user's functions."""


def copies() -> dict[str, str]:
    """Return the copied modules: path below the work directory -> text."""
    files = {"stages/__init__.py": STAGES / "base" / "__init__.py"}
    for package, names in MODULES.items():
        paths = (Path(package) / f"{name}.py" for name in names.split())
        files |= {f"stages/{path}": STAGES / path for path in paths}
    return {f"{COPIES}/{name}": file.read_text(encoding="utf-8") for name, file in files.items()}


def user_directories(reward: RewardConfig) -> list[str]:
    """Return the directories from which the user's reward functions are imported."""
    modules = (name.partition(":")[0] for name in reward.functions if name not in BUILTIN)
    return list(dict.fromkeys(str(path) for module in modules if (path := directory_of(module))))


def write_code(context: Context) -> None:
    """Write the digests of the user's modules that are in this stage's specification, if it has one."""
    file, specification = context.work / CODE, os.environ.get(VARIABLE)
    file.unlink(missing_ok=True)
    if specification:
        code = json.loads(Path(specification).read_text(encoding="utf-8"))["code"]
        file.write_text(json.dumps({"code": code}), encoding="utf-8")


def write_columns(context: Context, reward: RewardConfig, records: Path) -> None:
    """Write the dataset's columns for the user's functions, a line for each row of the training data."""
    if not reads_columns(reward):
        return
    if records.suffix == ".jsonl":  # of which count_rows knows an upper limit only
        with records.open("rb") as lines:
            count = sum(1 for _ in lines)
    else:
        count = count_rows([records])
    accepted = Accepted(is_async=False, names=None, required=())  # only the other interpreter knows which
    columns = dataset_columns(context, records, count, [accepted])
    with (context.work / COLUMNS).open("w", encoding="utf-8") as file:
        for row in range(count):
            line = {name: column[row] for name, column in columns.items()}
            file.write(json.dumps(line, default=str) + "\n")


def check_rewards(context: Context, reward: RewardConfig, samples: int) -> None:
    """Check what reward functions reported in a run, like `check_steps`, and pass on their warnings."""
    report = context.work / REPORT
    check_steps(report, reward, samples)
    for warning in single_call_warnings(report):
        context.warn(warning)


def check_steps(report: Path, reward: RewardConfig, samples: int) -> None:
    """Refuse a step in which a reward function failed too often (reward.max_failures).

    Args:
        report: the file REPORT.
        reward: section reward.
        samples: completions of a step.

    Raises:
        InputError: naming the function and its first failure.
    """
    steps: dict[int, Columns] = {}
    for entry in read_rows(report):
        columns = steps.setdefault(entry["step"], Columns({}, {}, Counter(), {}))
        for name, message in entry["faults"].items():
            columns.faults[name] += 1
            columns.late[name] = columns.late.get(name, 0) + (name in entry.get("late", ()))
            columns.messages.setdefault(name, message)
    for step, columns in sorted(steps.items()):
        check_failures(reward, columns, samples, f"completions of step {step}")


def single_call_warnings(report: Path) -> Iterator[str]:
    """Yield a warning for each function that could not score several completions in one call.

    `report` is the file REPORT.
    """
    told = set[str]()
    for entry in read_rows(report):
        for name, message in entry.get("single", {}).items():
            if name not in told:
                told.add(name)
                yield f"reward {name}: scored one by one, because a call with several failed: {message}"


def total_usage(work: Path) -> dict[str, float]:
    """Return what the reward judge took in all attempts of a run; empty without it."""
    total = dict[str, float]()
    for entry in read_rows(work / USAGE):
        for name, amount in entry["usage"].items():
            total[name] = total.get(name, 0) + amount
    return total


def share(reward: RewardConfig, processes: int) -> RewardConfig:
    """Return the reward of one of several processes, which share what judge and code may do at once."""
    if reward.judge is not None:
        judge = replace(reward.judge, concurrency=-(-reward.judge.concurrency // processes))
        reward = replace(reward, judge=judge)
    if reward.code is not None:
        reward = replace(reward, code=replace(reward.code, workers=-(-reward.code.workers // processes)))
    return reward


def settings(root: Path, reward: Mapping[str, object], directories: list[str]) -> dict[str, object]:
    """Return what the other interpreter needs to score: section reward, and the paths of the files above."""
    return {
        "path": [str(root / COPIES), *directories],
        "reward": reward,
        "report": str(root / REPORT),
        "usage": str(root / USAGE),
        "columns": str(root / COLUMNS),
        "code": str(root / CODE),
        "code_variable": VARIABLE,
    }
