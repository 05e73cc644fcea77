"""engine.upstream of verl: the keys of its ppo_trainer configuration."""

from pathlib import Path

from stages.engines.upstream import Upstream, load
from stages.engines.verl.job import Job

FIELDS = Path(__file__).with_name("fields")
TEMPLATE = FIELDS / "recipe.yaml"
RECORDS = {"fsdp2": "dp", "megatron": "megatron"}
"""engine.strategy -> verl's model_engine, which is also the name of the record."""


def fields(job: Job) -> Upstream:
    """Return the fields of the configuration of a run."""
    record = FIELDS / f"{RECORDS[job.engine.strategy]}.yaml"
    return load(FIELDS / "keys.yaml", ("", record, ""), templates=(("", TEMPLATE),))
