"""The file through which rewards reach verl; stages/engines/scoring.py has the modules that it imports."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from stages.engines import scoring
from stages.engines.verl.job import REWARDS, Job, Paths
from stages.rewards.planned_code import VARIABLE

VALIDATION = "validation"
"""Value of extra_info.split in rows that are held out."""
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
    validation={validation!r},
)
'''


def files(job: Job, paths: Paths) -> Mapping[str, str]:
    """Return the file and the copies: path below the work directory -> text."""
    root = paths.root
    text = TEMPLATE.format(
        path=[str(root / scoring.COPIES), *scoring.user_directories(job.reward)],
        values=dataclasses.asdict(job.reward),
        report=str(root / scoring.REPORT),
        columns=str(root / scoring.COLUMNS),
        code=str(root / scoring.CODE),
        variable=VARIABLE,
        validation=VALIDATION,
    )
    manager = Path(__file__).with_name("reward_manager.py").read_text(encoding="utf-8")
    return {
        f"configs/{REWARDS}": text,
        f"{scoring.COPIES}/grpoflow_rewards.py": manager,
        **scoring.copies(),
    }
