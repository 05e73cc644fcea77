"""engine=supervised: a run that ends with supervised training by mindformers, without questions and rewards.

The stage sft is the engine mindformers' (stages/engines/mindformers); its result is a Hugging Face directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.checks import equal
from stages.base.errors import Problem
from stages.base.graph import Stage
from stages.engines.engine import Engine
from stages.engines.mindformers.rules import trains
from stages.engines.supervised.config import SupervisedEngine

if TYPE_CHECKING:
    from stages.models.family import Family
    from stages.sections import Sections

SKIPPED = (
    (catalog.CONVERT, "mindformers' stage sft converts the weights that it starts from"),
    (catalog.STRATEGY, "mindformers distributes the weights itself"),
    (catalog.SPLIT, "mindformers distributes the weights itself"),
    (catalog.SFT, "engine.sft=off"),  # mindformers' stage takes its place
    (catalog.GRPO, "engine=supervised: no GRPO follows"),
    (catalog.EVALUATE, "engine=supervised: there are no rewards to measure"),
    (catalog.EXPORT, "the artifact of sft is a Hugging Face directory already"),
)


class Supervised(Engine[Any]):
    """Supervised training alone."""

    name = "supervised"
    settings = SupervisedEngine
    own_rewards = True  # none: mindformers learns what the examples say
    unrehearsed = "engine=supervised has no program of its own; mindformers' is rehearsed"

    def trains(self, family: Family) -> bool:
        """Return True if mindformers trains the network of a family."""
        return trains(family)

    def stages(self, run: Sections) -> tuple[Stage, ...]:
        """Return the stage that writes examples, and reasons why all others are left out."""
        convert, *after = (replace(stage, skipped=reason) for stage, reason in SKIPPED)
        return (convert, catalog.TOKENIZE, *after)

    def job(self, run: Sections) -> Sections:
        """Return the run."""
        return run

    def problems(self, job: Sections) -> Iterator[Problem]:
        """Yield a problem if nothing would be trained."""
        ours = "ours: stages/engines/supervised"
        why = "with engine=supervised it is the only training"
        yield from equal("engine.sft", job.engine.sft, "mindformers", why, ours)
        why = "a run trains on one file"
        yield from equal("tokenize.shards", job.tokenize.shards, 1, why, ours)


ENGINE = Supervised()
