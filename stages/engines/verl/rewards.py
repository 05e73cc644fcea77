"""The file through which a run's rewards reach verl, and the modules that it imports.

verl's interpreter has none of grpoflow's packages. It imports copies of stages/base and stages/rewards, which
need nothing but annotated-types, and the user's functions from their directories.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from stages.base.context import Context
from stages.engines.verl.job import REWARDS, TRAIN_DATA, Job, Paths
from stages.fetch.records import count_rows
from stages.grpo.columns import dataset_columns
from stages.grpo.metrics import read_rows
from stages.rewards.config import BUILTIN
from stages.rewards.planned_code import VARIABLE
from stages.rewards.process import Accepted
from stages.rewards.score import Columns, check_failures
from stages.rewards.user_code import directory_of

STAGES = Path(__file__).parents[2]
MODULES = {
    "": "own_packages",
    "base": "__init__ bounds errors identity reader redact tags",
    "rewards": "__init__ child config functions knights length maths messages number planned_code process "
    "score",
}
"""The copied modules of each package."""
COPIES = "scoring"
"""Directory of the copies, in the work directory."""
REPORT = "reward_failures.jsonl"
"""File below the work directory with a line for each completion that a reward function failed for."""
CODE = "planned_code.json"
"""File below the work directory with the user's modules and their digests, see planned_code.py."""
COLUMNS = "columns.jsonl"
"""File below the work directory with the columns of each training row; only for the user's functions."""
TEMPLATE = '''"""The rewards of this run, for verl's reward.reward_manager. Written by grpoflow."""

import os
import sys

sys.path[:0] = {path}
if os.path.exists({code!r}):  # the user's modules, and their digests
    os.environ[{variable!r}] = {code!r}
from grpoflow_rewards import make_manager

Rewards = make_manager(
    {values},
    report={report!r},
    columns={columns!r},
)
'''


def files(job: Job, paths: Paths) -> Mapping[str, str]:
    """Return the file and the copies: path below the work directory -> text."""
    path = [str(paths.root / COPIES), *user_directories(job)]
    values, report = dataclasses.asdict(job.reward), str(paths.root / REPORT)
    columns, code = str(paths.root / COLUMNS), str(paths.root / CODE)
    text = TEMPLATE.format(
        path=path, values=values, report=report, columns=columns, code=code, variable=VARIABLE
    )
    copies = {
        "grpoflow_rewards.py": Path(__file__).with_name("reward_manager.py"),
        "stages/__init__.py": STAGES / "base" / "__init__.py",
    }
    for package, names in MODULES.items():
        files = (Path(package) / f"{name}.py" for name in names.split())
        copies |= {f"stages/{file}": STAGES / file for file in files}
    texts = {f"{COPIES}/{name}": file.read_text(encoding="utf-8") for name, file in copies.items()}
    return {f"configs/{REWARDS}": text, **texts}


def user_directories(job: Job) -> list[str]:
    """Return the directories from which the user's reward functions are imported."""
    modules = (name.partition(":")[0] for name in job.reward.functions if name not in BUILTIN)
    return list(dict.fromkeys(str(path) for module in modules if (path := directory_of(module))))


def write_code(context: Context) -> None:
    """Write the digests of the user's modules that are in this stage's specification, if it has one."""
    file, specification = context.work / CODE, os.environ.get(VARIABLE)
    file.unlink(missing_ok=True)
    if specification:
        code = json.loads(Path(specification).read_text(encoding="utf-8"))["code"]
        file.write_text(json.dumps({"code": code}), encoding="utf-8")


def write_columns(context: Context, job: Job) -> None:
    """Write the dataset's columns for the user's functions, a line for each row of the training data."""
    if all(name in BUILTIN for name in job.reward.functions):
        return
    records = context.inputs["tokenize"] / TRAIN_DATA
    count = count_rows([records])
    accepted = Accepted(is_async=False, names=None, required=())  # only verl's interpreter knows which
    columns = dataset_columns(context, records, count, [accepted])
    with (context.work / COLUMNS).open("w", encoding="utf-8") as file:
        for row in range(count):
            line = {name: column[row] for name, column in columns.items()}
            file.write(json.dumps(line, default=str) + "\n")


def check_steps(report: Path, job: Job) -> None:
    """Refuse a step in which a reward function failed too often (reward.max_failures).

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
        check_failures(job.reward, columns, job.samples, f"completions of step {step}")
