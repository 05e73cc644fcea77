"""engine.sft=mindformers: supervised training by mindformers before all other stages, for any engine.

Its result is a Hugging Face directory, which later stages read instead of the fetched one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.graph import Program, Stage
from stages.engines import upstream
from stages.engines.declaration import Declaration, Declared
from stages.engines.mindformers.checkout import KNOWN, checkout
from stages.engines.mindformers.job import Job
from stages.engines.mindformers.rules import RULES, trains
from stages.engines.sizes import growth
from stages.models.layouts import warnings

if TYPE_CHECKING:
    from stages.sections import Sections

SFT = Program("mindformers", "stages.engines.mindformers.stage", version=3, section="mindformers")


def stages(run: Sections) -> tuple[Stage, ...]:
    """Return the stage that replaces an engine's own sft stage."""
    size = run.model.weight_bytes
    # Each checkpoint has weights and both Adam moments of each replica; one more exists while it is written.
    # To them are added the result, and the weights at the start.
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


def derive(values: dict[str, Any]) -> None:
    """Turn off the embedded trainer's sft, so that split writes all roles; move engine.upstream.train."""
    values["sft"]["enabled"] = False
    keys = values["engine"].get("upstream")
    if isinstance(keys, dict) and "train" in keys:
        below = values["mindformers"]["upstream"]
        values["mindformers"]["upstream"] = upstream.merged(below, {"train": keys.pop("train")})
        if values["engine"]["name"] == "local":
            del values["engine"]["upstream"]  # it has no other program


def notes(run: Sections) -> Iterator[str]:
    """Yield notes for the plan."""
    yield from upstream.notes("mindformers", run.mindformers.upstream)
    if run.engine.name == "local":  # other engines yield these notes themselves
        layout = run.layout.train
        yield from (f"layout.train: {text}" for text in warnings(run.model, layout))


ENGINE = Declared(
    Declaration(
        name="mindformers",
        trains=trains,
        stages=stages,
        rules=RULES,
        subject=lambda run, cards_per_node: Job.from_run(run),
        programs=(SFT,),
        checkouts=(
            checkout("mindformers.home", "a checkout of mindformers at 051d65f or v1.6.0", package=None),
        ),
        known={"": KNOWN},
        imports=("mindspore",),
        rehearsal="pipeline.rehearsal.mindformers",
        derive=derive,
        notes=notes,
    )
)
