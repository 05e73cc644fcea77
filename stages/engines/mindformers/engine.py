"""engine.sft=mindformers: supervised training by mindformers before all other stages, for any engine.

Its result is a Hugging Face directory, which later stages read instead of the fetched one.
Read in this order: config.py (settings), checkout.py, job.py, files.py (what is rendered), rules.py (what is
refused), stage.py (start and end of a run), checkpoints.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.errors import Problem
from stages.base.graph import Program, Stage
from stages.engines import upstream_keys
from stages.engines.engine import Engine, Environment, R, growth
from stages.engines.mindformers import rules
from stages.engines.mindformers.checkout import checkout, finetune_schema, under
from stages.engines.mindformers.config import MindformersConfig
from stages.engines.mindformers.files import RENDERED
from stages.engines.mindformers.job import Job
from stages.engines.programs import known_versions
from stages.engines.upstream_keys import Schema
from stages.models.families import network_of
from stages.models.layouts import warnings

if TYPE_CHECKING:
    from stages.models.family import Family
    from stages.sections import Sections

SFT = Program("mindformers", "stages.engines.mindformers.stage", version=2, section="mindformers")
GROUP = "train"
"""Group of mindformers.upstream, and of engine.upstream, with the keys of finetune.yaml."""


class Mindformers(Engine[Job]):
    """mindformers' supervised training."""

    name = "mindformers"
    settings = MindformersConfig
    section = "mindformers"
    programs = (SFT,)
    checkouts = (
        checkout("mindformers.home", "a checkout of mindformers at 051d65f or v1.6.0", package=None),
    )
    imports = ("mindspore",)
    rehearsal = "pipeline.rehearsal.mindformers"
    rendered = RENDERED

    def trains(self, family: Family) -> bool:
        """Return True if mindformers trains the network of a family."""
        return rules.trains(family)

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the stage that replaces an engine's own sft stage."""
        size = run.model.weight_bytes
        # Each checkpoint has weights and both Adam moments of each replica; one more exists while it is
        # written. To them are added the result, and the weights at the start.
        checkpoint = 3 * size * run.layout.train.data_parallel * growth(run)
        sft = replace(
            catalog.SFT,
            sections=("model", "layout", "tokenize", "mindformers", "seed"),
            inputs={"tokenize": "tokenize", "fetch": "fetch"},
            workers=run.layout.train.cards,
            computes=True,
            bytes_written=2 * size + checkpoint * (1 + run.mindformers.keep_checkpoints),
            program=SFT,
            unread=frozenset(("layout", key) for key in ("generate", "reference")),
        )
        return (sft,)

    def job(self, run: Sections) -> Job:
        """Return the job of a run."""
        return Job.from_run(run)

    def derive(self, run: R) -> R:
        """Turn off the embedded trainer's sft, so that split writes all roles; move engine.upstream.train."""
        run = replace(run, sft=replace(run.sft, enabled=False))
        keys = dict(run.engine.upstream)
        if GROUP not in keys:
            return run
        moved = {GROUP: keys.pop(GROUP)}
        settings = replace(run.mindformers, upstream=upstream_keys.merged(run.mindformers.upstream, moved))
        return replace(run, engine=replace(run.engine, upstream=keys), mindformers=settings)

    def problems(self, job: Job) -> Iterator[Problem]:
        """Yield what mindformers refuses or gets silently wrong."""
        yield from upstream_keys.group_problems("mindformers.upstream", job.mindformers.upstream, (GROUP,))
        yield from rules.problems(job)

    def all_notes(self, run: Sections) -> Iterator[str]:
        """Yield the notes for the plan."""
        yield from super().all_notes(run)
        at_once, examples = run.mindformers.examples_per_card, run.mindformers.batch_size
        if run.layout.train.cards == 1 and examples > at_once:
            yield (
                f"mindformers.batch_size={examples}: on one card mindformers accumulates no gradients "
                "(base_trainer.py), so that all examples of an update are computed at once, whatever "
                "mindformers.examples_per_card is"
            )
        if run.engine.name == "local":  # other engines yield these notes themselves
            yield from (f"layout.train: {text}" for text in warnings(run.model, run.layout.train))

    def environment(self, settings: Any) -> Environment:
        """Return the versions that work."""
        return known_versions("mindformers", "machine")

    def schema(self, job: Job) -> Schema | None:
        """Return the keys of finetune.yaml that the checkout's classes have; None without a checkout."""
        home = job.mindformers.home
        found = None if home is None else finetune_schema(home, network_of(job.model))
        return None if found is None else under(GROUP, found)


ENGINE = Mindformers()
