"""Jobs as the pipeline makes them: composed, derived, checked."""

import functools
from pathlib import Path

from pipeline.config.load import load
from stages.engines.mindformers.job import Job, Paths
from stages.engines.mindformers.stage import paths_of

DATA = Path(__file__).parents[3] / "data"
PATHS: Paths = paths_of(Path("/run"), Path("/records"))


@functools.lru_cache(64)  # composing takes a second
def job_of(*overrides: str) -> Job:
    """Return a job of engine=mindrlhf, which has all layouts that mindformers has."""
    fixed = ["engine=mindrlhf", "engine.sft=mindformers", "model.path=/models/qwen"]
    return Job.from_run(load([*fixed, *overrides]))
