"""Learning rates that mindrlhf's own class gives with our files and several updates per step."""

import math
from pathlib import Path

import pytest

from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.files import all_configs
from tests.stages.engines.mindrlhf.jobs import job_of, paths
from tests.upstream.programs import ask

pytestmark = pytest.mark.upstream
PROGRAM = Path(__file__).with_name("schedule_program.py")
PEAK, SHARE, WARMUP, STEPS = 1e-4, 0.1, 3, 10


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_rate_falls_over_steps_times_iterations(version, schedule, iterations, checkout, interpreter):
    job = job_of(
        "model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"engine.contract={version}", f"train.steps={STEPS}",
        f"train.schedule={schedule}", f"train.final_share={SHARE}", f"train.warmup_steps={WARMUP}",
        f"train.learning_rate={PEAK}", f"train.num_iterations={iterations}",
    )  # fmt: skip
    actor = all_configs(job, paths(job), False)["grpo_config.yaml"]["actor_config"]
    updates = STEPS * iterations
    request = {"lr_schedule": actor["lr_schedule"], "updates": 2 * updates}
    utils = checkout(f"mindrlhf-{version}") / "mindrlhf/utils/utils.py"
    rates = ask(interpreter("mindspore"), PROGRAM, request, utils)
    shares = [min(1, update / updates) for update in range(2 * updates)]
    fall = shares if schedule == "linear" else [(1 - math.cos(math.pi * share)) / 2 for share in shares]
    expected = [PEAK * (1 - (1 - SHARE) * item) for item in fall]
    expected[:WARMUP] = [PEAK * update / WARMUP for update in range(WARMUP)]
    assert rates == pytest.approx(expected, rel=1e-5)
