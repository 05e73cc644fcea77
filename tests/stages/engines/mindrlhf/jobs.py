"""Jobs as the pipeline makes them: composed, derived, checked."""

import functools
from pathlib import Path

from pipeline.config.load import load
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.stage import paths_of

DATA = Path(__file__).parents[3] / "data"


@functools.lru_cache(64)  # composing takes a second
def job_of(*overrides: str) -> Job:
    return Job.from_run(load(["engine=mindrlhf", "model.path=/models/qwen", *overrides]))


def paths(job: Job) -> Paths:
    return paths_of(job, Path("/run"), Path("/data/train.mindrecord"))
