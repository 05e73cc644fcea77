"""Jobs as the pipeline makes them: composed, derived, checked."""

import functools
from pathlib import Path

from pipeline.config.load import load
from stages.engines.mindrlhf_one_stage.job import Job
from stages.engines.mindrlhf_one_stage.stage import paths_of

HOME = Path(__file__).parents[3] / "data" / "mindrlhf_one_stage_standin" / "2d0e84d"
SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
PATHS = paths_of(Path("/run"), {"tokenize": Path("/records"), "fetch": Path("/hf")})


@functools.lru_cache(64)  # composing takes a second
def job_of(*overrides: str) -> Job:
    return Job.from_run(load(["engine=mindrlhf_one_stage", "model.path=/models/qwen", *overrides]))
