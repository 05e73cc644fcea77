"""The file through which rewards reach verl; stages/engines/scoring.py has the modules that it imports."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from stages.base.keys import leaves
from stages.engines import scoring
from stages.engines.verl.agent import CALLS
from stages.engines.verl.job import REWARDS, Job, Paths
from stages.rewards.planned_code import VARIABLE

VALIDATION = "validation"
"""Value of extra_info.split in rows that are held out."""
WORKERS = 8
"""verl's reward.num_workers."""
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
    usage={usage!r},
    columns={columns!r},
    validation={validation!r},{calls}
)
'''


def processes(job: Job) -> int:
    """Return the processes in which verl computes rewards (trainer/config/reward/reward.yaml)."""
    given = dict(leaves(job.engine.upstream)).get("reward.num_workers")
    return given if isinstance(given, int) and given > 0 else 1 if job.on_cpu else WORKERS


def files(job: Job, paths: Paths) -> Mapping[str, str]:
    """Return the file and the copies: path below the work directory -> text."""
    root = paths.root
    calls = "" if job.rollout.agent is None else f"\n    calls={str(root / CALLS)!r},"
    text = TEMPLATE.format(
        path=[str(root / scoring.COPIES), *scoring.user_directories(job.reward)],
        values=dataclasses.asdict(scoring.share(job.reward, processes(job))),
        report=str(root / scoring.REPORT),
        usage=str(root / scoring.USAGE),
        columns=str(root / scoring.COLUMNS),
        code=str(root / scoring.CODE),
        variable=VARIABLE,
        validation=VALIDATION,
        calls=calls,
    )
    manager = Path(__file__).with_name("reward_manager.py").read_text(encoding="utf-8")
    return {
        f"configs/{REWARDS}": text,
        f"{scoring.COPIES}/grpoflow_rewards.py": manager,
        **scoring.copies(),
    }
