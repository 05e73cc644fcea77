"""Rules of engines that shard by FSDP over Ray's cards, and generate with inference servers on them.

`source` is the file of the program that a rule follows from, `ours` the module of grpoflow's engine.
"""

from collections.abc import Iterator

from stages.base.checks import divides, equal, multiple_of
from stages.base.errors import Problem
from stages.base.layout import ROLES
from stages.engines.layout_rules import layout_problems
from stages.engines.ray import RayJob


def fsdp_problems(job: RayJob, keys: tuple[str, ...], why: str, source: str) -> Iterator[Problem]:
    """Yield a problem for each of the `keys` of layout.train that divides anything but data."""
    for key in keys:
        degree = getattr(job.layout.train, key)
        yield from equal(f"layout.train.{key}", degree, 1, why, source, "raise data_parallel instead")


def server_problems(
    job: RayJob, program: str, why: str, source: str, ours: str, per_node: int | None, machines: str
) -> Iterator[Problem]:
    """Yield problems of sharded servers and of experts.

    Args:
        job: the run.
        program: name of the engine's program.
        why: what its servers can do.
        source: of that.
        ours: module of the engine.
        per_node: engine.cards_per_node if the run needs several machines, else None.
        machines: source of the rule that a server stays on one machine.
    """
    generate = job.layout.generate
    for key in ("pipeline_stage", "context_parallel"):
        yield from equal(f"layout.generate.{key}", getattr(generate, key), 1, why, source)
    for role in ROLES:
        degree = job.layout.role(role).expert_parallel
        unrendered = f"grpoflow does not render it for {program}"
        yield from equal(f"layout.{role}.expert_parallel", degree, 1, unrendered, ours)
    yield from layout_problems(job.model, {role: job.layout.role(role) for role in ROLES})
    if per_node is not None:
        yield from divides(
            "layout.generate.model_parallel",
            generate.model_parallel,
            per_node,
            "engine.cards_per_node",
            "a server stays on one machine",
            machines,
        )


def rollout_card_problems(job: RayJob, rollout_cards: int, source: str) -> Iterator[Problem]:
    """Yield a problem unless the cards that only generate make whole servers."""
    size, key = job.layout.generate.model_parallel, "layout.generate.model_parallel"
    why = "each server has so many cards"
    yield from multiple_of("engine.rollout_cards", rollout_cards, size, key, why, source)


def card_note(train_cards: int, rollout_cards: int) -> str:
    """Return a note with the numbers of cards that train and that generate."""
    cards = f"{train_cards} cards train and {rollout_cards} others generate"
    return f"{cards} (engine.rollout_cards): {train_cards + rollout_cards} in all"


def update_problems(job: RayJob, why: str, source: str) -> Iterator[Problem]:
    """Yield a problem unless the updates of a step have equal numbers of prompts."""
    key, whole = "engine.mini_batch_size", "train.prompts_per_step"
    yield from divides(
        key, job.mini_batch_size, job.train.prompts_per_step, whole, why, source, "leave it null"
    )


def sampling_problems(job: RayJob, why: str, source: str, why_no_penalty: str) -> Iterator[Problem]:
    """Yield a problem for each rule of sampling that the program does not hand to its servers."""
    rollout = job.rollout
    yield from equal("rollout.min_tokens", rollout.min_tokens, 0, why, source)
    yield from equal("rollout.min_p", rollout.min_p, None, why, source)
    penalty = rollout.repetition_penalty
    yield from equal("rollout.repetition_penalty", penalty, 1.0, why_no_penalty, source)


def logger_problems(job: RayJob, program: str, ours: str) -> Iterator[Problem]:
    """Yield a problem if metrics should go to other trackers than TensorBoard."""
    why = f"grpoflow gives {program}'s numbers to TensorBoard alone"
    yield from equal("train.loggers", job.train.loggers, (), why, ours)
