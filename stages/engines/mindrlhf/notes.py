"""Notes for the plan of engine=mindrlhf about behaviour that no rule forbids; their texts: notes.yaml."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from stages.engines import tables, upstream
from stages.engines.mindrlhf.job import Job, MindrlhfJob
from stages.models.layouts import warnings


def add_layouts(job: MindrlhfJob, applies: Mapping[str, bool]) -> Iterator[str]:
    """Yield the notes that apply, and those about the layouts of either engine's job."""
    yield from tables.notes(Path(__file__).with_suffix(".yaml"), job, applies)
    for role in job.roles:
        yield from (f"layout.{role}: {text}" for text in warnings(job.model, job.layout.role(role)))


def notes(job: Job) -> Iterator[str]:
    """Yield notes about steps, weights, and values that mindrlhf does not pass on."""
    train, rollout, engine, ids = job.train, job.rollout, job.engine, job.model.token_ids
    several = job.updates_per_step > 1
    layout = job.layout.train
    applies = {
        "steps": not several,
        "steps_of_updates": several,
        "unclipped": job.version == "0cd087455" and train.num_iterations == 1 and several,
        "micro_batches": layout.pipeline_stage == 1 and layout.micro_batch_num > 1,
        "weight_decay": train.weight_decay != 0.1,
        "temperature": rollout.temperature != 1,
        "endless": job.model.source != "builtin" and set(ids.eos) == {ids.pad},
        "min_p": bool(rollout.min_p),
        "equal_completions": engine.use_vllm == 0 and job.distinct_completions < rollout.num_generations,
        "seed": True,
        "world_size": engine.use_vllm > 0,
    }
    yield from add_layouts(job, applies)
    yield from job.tutorial.notes
    yield from upstream.notes("engine", engine.upstream)
