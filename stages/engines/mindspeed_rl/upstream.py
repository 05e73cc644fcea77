"""engine.upstream of MindSpeed-RL: SECTION.KEY of its training YAML."""

from collections.abc import Iterator
from pathlib import Path

from stages.engines import upstream
from stages.engines.mindspeed_rl.job import Job
from stages.engines.upstream import Upstream, leaves, load

FIELDS = Path(__file__).with_name("fields")
TEMPLATE = FIELDS / "train.yaml"
SECTIONS = (
    "megatron_training", "actor_config", "rl_config", "generate_config", "profiler_config.integrated",
    "msprobe_config",
)  # fmt: skip
SEPARATE = ("ref_config", "reward_config")
"""Sections that MindSpeed-RL refuses with integrated workers."""

CHECKPOINT_KEYS = (
    "expert_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "lora_target_modules",
)  # fmt: skip
"""Keys that change the files or tensors of Megatron's checkpoints."""


def fields(job: Job) -> Upstream:
    """Return the fields of the training YAML."""
    sections = (*SECTIONS, *(() if job.engine.use_integrated_worker else SEPARATE))
    record = FIELDS / f"{job.engine.contract}.yaml"
    records = (("", record, section) for section in sections)
    return load(FIELDS / "keys.yaml", *records, templates=(("", TEMPLATE),))


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about the keys that are set."""
    yield from upstream.notes("engine", job.engine.upstream)
    for path, value in leaves(job.engine.upstream):
        if path.rpartition(".")[2] in CHECKPOINT_KEYS:
            yield (
                f"engine.upstream.{path}={value}: changes Megatron's checkpoints, but convert, resume and "
                "export expect those of the layout"
            )
