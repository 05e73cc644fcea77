"""The file through which a run's rewards reach verl, and the modules that it imports.

verl's interpreter has none of grpoflow's packages. It imports copies of stages/base and stages/rewards, which
need nothing but annotated-types, and the user's functions from their directories.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from stages.engines.verl.job import REWARDS, Job, Paths
from stages.grpo.metrics import read_rows
from stages.rewards.config import BUILTIN
from stages.rewards.score import Columns, check_failures
from stages.rewards.user_code import directory_of

STAGES = Path(__file__).parents[2]
MODULES = {
    "base": "__init__ bounds errors identity reader redact tags",
    "rewards": "__init__ config functions knights length limit maths number score",
}
"""The copied modules of each package."""
COPIES = "scoring"
"""Directory of the copies, in the work directory."""
REPORT = "reward_failures.jsonl"
"""File below the work directory with a line for each completion that a reward function failed for."""
TEMPLATE = '''"""The rewards of this run, for verl's reward.reward_manager. Written by grpoflow."""

import sys

sys.path[:0] = {path}
from grpoflow_rewards import make_manager

Rewards = make_manager(
    {values},
    report={report!r},
)
'''


def files(job: Job, paths: Paths) -> Mapping[str, str]:
    """Return the file and the copies: path below the work directory -> text."""
    path = [str(paths.root / COPIES), *user_directories(job)]
    values, report = dataclasses.asdict(job.reward), str(paths.root / REPORT)
    text = TEMPLATE.format(path=path, values=values, report=report)
    copies = {
        "grpoflow_rewards.py": Path(__file__).with_name("reward_manager.py"),
        "stages/__init__.py": STAGES / "base" / "__init__.py",
    }
    for package, names in MODULES.items():
        copies |= {f"stages/{package}/{name}.py": STAGES / package / f"{name}.py" for name in names.split()}
    texts = {f"{COPIES}/{name}": file.read_text(encoding="utf-8") for name, file in copies.items()}
    return {f"configs/{REWARDS}": text, **texts}


def user_directories(job: Job) -> list[str]:
    """Return the directories from which the user's reward functions are imported."""
    modules = (name.partition(":")[0] for name in job.reward.functions if name not in BUILTIN)
    return list(dict.fromkeys(str(path) for module in modules if (path := directory_of(module))))


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
            columns.messages.setdefault(name, message)
    for step, columns in sorted(steps.items()):
        check_failures(job.reward, columns, job.samples, f"completions of step {step}")
