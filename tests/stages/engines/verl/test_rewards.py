"""Failures of reward functions that verl's workers report, counted for each step."""

import json

import pytest

from pipeline.config.load import load
from stages.base.errors import InputError
from stages.engines.verl import rewards
from stages.engines.verl.job import Job

OVERRIDES = [
    "experiment=verl_7b", "model.path=/models/m", "train.prompts_per_step=8", "rollout.num_generations=4",
    "layout=dp4_mp1_pp1", "engine.mini_batch_size=null", "reward.max_failures=2",
]  # fmt: skip


def write(report, *steps):
    lines = [json.dumps({"step": step, "faults": {"maths": f"failed in {step}"}}) for step in steps]
    report.write_text("".join(f"{line}\n" for line in lines))


def test_a_step_with_too_many_failures_is_refused(tmp_path):
    report, run = tmp_path / rewards.REPORT, Job.from_run(load(OVERRIDES))
    rewards.check_steps(report, run)
    write(report, 1, 1, 2, 3, 3)
    rewards.check_steps(report, run)  # five failures, but not more than two in any step
    write(report, 1, 2, 1, 2, 2)
    with report.open("a") as file:
        file.write('{"step": 2, "fau')  # by a worker that was killed
    with pytest.raises(InputError, match=r"failed for 3 of 32 completions of step 2.*: failed in 2"):
        rewards.check_steps(report, run)
