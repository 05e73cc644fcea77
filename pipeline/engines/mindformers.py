"""engine.sft=mindformers: supervised training by mindformers before everything else, for any engine.

Its result is a Hugging Face directory, which every later stage reads in the place of the fetched one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline.engines.machines import machines
from pipeline.engines.stage import Stage
from pipeline.errors import Problem
from stages.engines.mindformers import job
from stages.engines.mindformers.job import Job
from stages.strategy.layouts import warnings

if TYPE_CHECKING:
    from pipeline.config.load import Config

BEFORE = ("fetch", "fetch_dataset", "tokenize")
"""Stages that it waits for, or that run beside it."""


def put_first(stages: Sequence[Stage], config: Config) -> tuple[Stage, ...]:
    """An engine's graph with its own sft stage replaced, and what follows reading the result."""
    before = [stage for stage in stages if stage.name in BEFORE]
    after = [stage for stage in stages if stage.name not in (*BEFORE, "sft")]
    return (*before, _sft(config), *map(_from_sft, after))


def _sft(config: Config) -> Stage:
    widened = config.model.param_init_type == "float32" and config.model.torch_dtype != "float32"
    size = config.model.weight_bytes
    # Per checkpoint weights and both Adam moments on each replica; one more while it is written. The result,
    # and the weights that mindformers starts from.
    checkpoint = 3 * size * config.layout.train.data_parallel * (2 if widened else 1)
    return Stage(
        "sft",
        ("model", "layout", "tokenize", "mindformers", "seed"),
        {"tokenize": "tokenize", "fetch": "fetch"},
        workers=config.layout.train.cards,
        computes=True,
        bytes_written=2 * size + checkpoint * (1 + config.mindformers.keep_checkpoints),
        engine="mindformers",
        unread=frozenset(("layout", key) for key in ("generate", "reference")),
    )


def _from_sft(stage: Stage) -> Stage:
    inputs = {name: "sft" if source == "fetch" else source for name, source in stage.inputs.items()}
    return replace(stage, inputs=inputs)


def derive(values: dict[str, Any]) -> None:
    """The embedded trainer's own sft is off, so that split cuts the weights for every role."""
    values["sft"]["enabled"] = False


def problems(config: Config) -> Iterator[Problem]:
    """Rules of the run, and of the checkout where there is one."""
    yield from job.check(run_of(config))
    if config.mindformers.home is not None:
        yield from job.check_home(config.mindformers.home)


def needs(config: Config) -> Iterator[Problem]:
    """The checkout, and machines for all cards."""
    if config.mindformers.home is None:
        rule = "is required to run: a checkout of mindformers"
        yield Problem("mindformers.home", None, rule, "clone it and give its directory")
    yield from machines(config, config.mindformers.container, "mindformers.container")


def notes(config: Config) -> Iterator[str]:
    """What a plan should say of it."""
    if config.mindformers.home is None:
        yield "mindformers.home is not set: run refuses without it"
    if config.engine.name == "local":  # others say it themselves
        layout = config.layout.train
        yield from (f"layout.train: {text}" for text in warnings(config.model, layout))


def run_of(config: Config) -> Job:
    """The sections that a run is rendered from."""
    return Job(config.model, config.layout.train, config.tokenize, config.mindformers, config.seed)


def rehearsed(config: Config) -> Mapping[str, str | None]:
    """The one that trains."""
    return {"mindformers.home": config.mindformers.home}
