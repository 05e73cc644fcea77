"""engine.upstream of MindSpeed-RL: SECTION.KEY of its training YAML."""

from pathlib import Path

from stages.engines.mindspeed_rl.job import Job
from stages.engines.upstream import Upstream, load

FIELDS = Path(__file__).with_name("fields")
TEMPLATE = FIELDS / "train.yaml"
SECTIONS = (
    "megatron_training", "actor_config", "rl_config", "generate_config", "profiler_config.integrated",
    "msprobe_config",
)  # fmt: skip
SEPARATE = ("ref_config", "reward_config")
"""Sections that MindSpeed-RL refuses with integrated workers."""


def fields(job: Job) -> Upstream:
    """Return the fields of the training YAML."""
    sections = (*SECTIONS, *(() if job.engine.use_integrated_worker else SEPARATE))
    record = FIELDS / f"{job.engine.contract}.yaml"
    records = (("", record, section) for section in sections)
    return load(FIELDS / "keys.yaml", *records, templates=(("", TEMPLATE),))
