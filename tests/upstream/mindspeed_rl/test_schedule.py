"""Learning rates that Megatron's own scheduler gives with our files and several updates per step."""

from pathlib import Path

import pytest

from stages.engines.mindspeed_rl.engine import notes
from stages.engines.mindspeed_rl.train_yaml import train_config
from tests.stages.engines.mindspeed_rl.jobs import job_of, paths
from tests.upstream.programs import ask

pytestmark = pytest.mark.upstream
PROGRAM = Path(__file__).with_name("schedule.py")
PEAK = 1e-5
SCHEDULERS = {
    "05a90d7": ("megatron-core_v0.12.1", "core/optimizer_param_scheduler.py"),
    "667a547": ("megatron-core_v0.8.0", "training/optimizer_param_scheduler.py"),
}
"""Version of MindSpeed-RL -> its Megatron and the scheduler's file."""


def rates(job, version, checkout, interpreter):
    """Return the rate of each update."""
    name, file = SCHEDULERS[version]
    config = train_config(job, paths(), False)
    return ask(interpreter("mindspeed"), PROGRAM, config, checkout(name) / "megatron" / file)


def recipe(version, iterations, *more):
    return job_of(
        "model=qwen2_5_7b", "layout=dp1_mp4_pp1", f"engine.contract={version}", "train.steps=60",
        "train.checkpoint_every=60", "train.prompts_per_step=32", "rollout.num_generations=4",
        f"train.learning_rate={PEAK}", f"train.num_iterations={iterations}", *more,
    )  # fmt: skip


@pytest.mark.parametrize("mini_batch", ["null", "16"])
@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("version", ["05a90d7", "667a547"])
def test_the_rate_rises_over_warmup_steps_updates(version, iterations, mini_batch, checkout, interpreter):
    job = recipe(version, iterations, "train.warmup_steps=6", f"engine.mini_batch_size={mini_batch}")
    result = rates(job, version, checkout, interpreter)
    assert len(result) == 60 * iterations * (1 if mini_batch == "null" else 2)
    assert result == pytest.approx([PEAK * min(1, update / 6) for update in range(len(result))])


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_falling_rate_ends_at_the_value_in_the_note(schedule, checkout, interpreter):
    job = recipe("05a90d7", 2, f"train.schedule={schedule}", "train.final_share=0.1")
    result = rates(job, "05a90d7", checkout, interpreter)
    last = next(update for update, rate in enumerate(result) if rate <= PEAK * 0.1 * (1 + 1e-9))
    assert last / 2 == pytest.approx(job.decay_steps, abs=0.5)
    assert f"about {job.decay_steps:g} of 60 steps" in " ".join(notes(job))
    assert all(rate >= PEAK * 0.1 * (1 - 1e-9) for rate in result)
