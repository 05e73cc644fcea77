"""The recipe of a rehearsal of engine=areal."""

from pathlib import Path

import pytest

from pipeline.config import rules
from pipeline.config.load import load
from pipeline.config.sections import Config
from stages.base.reader import read
from stages.engines.areal.job import Job
from stages.engines.areal.shrink import SERVER_LOG, shrink

BASE = ("engine=areal", "model=qwen2_5_7b", "model.path=/models/qwen", "layout=dp4_mp1_pp1")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "overrides",
    [
        ("experiment=areal_7b", "model.path=/models/qwen"),
        (*BASE, "engine.kl_in_reward=0.1", "engine.mini_batch_size=8"),
        (*BASE, "engine.mode=async", "engine.staleness=1", "rollout.correction=mis", "launcher=slurm"),
    ],
)
def test_a_recipe_for_npus_becomes_one_for_this_machine(overrides, workers):
    full = load(list(overrides))
    small = read(Config, shrink(full.plain(), Path("/tmp/model"), workers, Path("/tmp/log")))
    assert list(rules.check(small)) == []
    job = Job.from_run(small)
    assert job.on_cpu and not job.on_ray and (job.train_cards, job.servers) == (workers, 1)
    assert (job.engine.mode, job.staleness) == (full.engine.mode, Job.from_run(full).staleness)
    assert job.rollout.correction == full.rollout.correction
    assert job.engine.env[SERVER_LOG] == "/tmp/log"
    assert job.samples <= 32 and small.train.steps == 2
