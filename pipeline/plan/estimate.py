"""Estimated durations of stages that no earlier artifact tells, and warnings about long ones.

The figures are nominal (stages/models/cost.py): good enough to tell minutes from days.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages import engines
from stages.engines import local
from stages.models import cost
from stages.models.cost import Generation
from stages.models.families import family_of
from stages.report.text import duration

if TYPE_CHECKING:
    from pipeline.config.sections import Config
    from pipeline.plan.graph import Plan
    from pipeline.store.store import Store

LONG_S = 3600.0
"""Seconds above which a warning names the remedy."""
NOTED_S = 600.0
"""Seconds above which a note tells the estimate."""
LARGE = 3e9
"""Parameters above which local answers are announced, however long they take."""
ASSUMED_PROMPTS = 1000
"""Held-out prompts, where neither evaluate nor the dataset tells their number."""


@dataclass(frozen=True)
class Estimate:
    """Estimated duration of a stage."""

    seconds: float
    basis: str
    """What it was computed from."""


def estimates(config: Config) -> dict[str, Estimate]:
    """Return the estimates of the stages that compute, by stage, where there is a basis for them."""
    graph = {stage.name: stage for stage in engines.get(config.engine.name).stages(config)}
    result = {}
    if (stage := graph.get("evaluate")) is not None and stage.skipped is None:
        result["evaluate"] = _evaluate(config)
    if config.engine.name == "local":
        result["grpo"] = _local_training(config)
    elif (stage := graph.get("grpo")) is not None and stage.skipped is None:
        result |= _cards_training(config)
    return result


def answers_of(config: Config) -> Generation:
    """Return what one model generates in evaluate; a prompt's samples share the computation of the prompt."""
    evaluate = config.evaluate
    prompts = evaluate.num_prompts or config.dataset.test_rows or ASSUMED_PROMPTS
    sampled = min(evaluate.sample_prompts, prompts)
    return Generation(
        prompts + sampled,
        config.tokenize.max_prompt_length,
        prompts + sampled * evaluate.num_samples,
        config.rollout.max_tokens,
        evaluate.batch_prompts,
    )


def _evaluate(config: Config) -> Estimate:
    work, layout = answers_of(config), config.evaluate.layout
    count = f"2 models x {work.completions} completions of up to {work.tokens} tokens"
    if config.evaluate.program == "vllm" and not on_cpu(config):
        seconds = cost.generation_on_cards(config.model, work, layout.tensor_parallel, layout.replicas)
        return Estimate(2 * (seconds + cost.OPENING_S), f"{count} on {layout.cards} cards")
    cores = len(os.sched_getaffinity(0))
    opening = cost.OPENING_S if config.evaluate.program == "vllm" else 0.0
    seconds = cost.generation_on_cpu(config.model, work, cores)
    return Estimate(2 * (seconds + opening), f"{count} on {cores} cores of this CPU")


def on_cpu(config: Config) -> bool:
    """Return True if the engine of a run computes on a CPU."""
    engine = config.engine
    return str(getattr(engine, "device_target", getattr(engine, "device", "npu"))).lower() == "cpu"


def _steps(config: Config) -> Generation:
    """Return what one step of grpo samples."""
    train, rollout = config.train, config.rollout
    completions = train.prompts_per_step * rollout.num_generations
    return Generation(
        train.prompts_per_step,
        config.tokenize.max_prompt_length,
        completions,
        rollout.max_tokens,
        completions,
    )


def _local_training(config: Config) -> Estimate:
    """Return the estimate of sampling, passes without gradients, and the updates."""
    work, train, cores = _steps(config), config.train, len(os.sched_getaffinity(0))
    trained = work.completions * (work.prompt_tokens + work.tokens)
    passes = 6 * train.num_iterations + 2 * (train.beta > 0) + 2
    operations = config.model.active_parameters * (passes * trained + 2 * work.computed)
    seconds = train.steps * operations / (cores * cost.CORE_FLOP_S)
    return Estimate(
        seconds, f"{train.steps} steps of {work.completions} completions on {cores} cores of this CPU"
    )


def _cards_training(config: Config) -> dict[str, Estimate]:
    """Return the estimate of grpo on cards: sampling, passes without gradients, and the updates."""
    if on_cpu(config):
        return {}
    work, train, layout = _steps(config), config.train, config.layout
    generate = layout.generate
    replicas = max(1, generate.cards // generate.model_parallel)
    share = Generation(
        work.prompts, work.prompt_tokens, work.completions, work.tokens, -(-work.completions // replicas)
    )
    sampled = cost.generation_on_cards(config.model, share, generate.model_parallel, replicas)
    trained = work.completions * (work.prompt_tokens + work.tokens)
    updates = cost.cost(config.model, layout.train, trained * train.num_iterations, train.num_iterations)
    without = 2 * (1 + (train.beta > 0)) * config.model.active_parameters * trained
    seconds = train.steps * (sampled + updates.seconds + without / (layout.train.cards * cost.CARD_FLOP_S))
    basis = f"{train.steps} steps of {work.completions} completions on {layout.train.cards} cards"
    return {"grpo": Estimate(seconds, basis)}


def warnings(plan: Plan, store: Store) -> Iterator[str]:
    """Yield a warning if evaluate takes longer than an hour, or if a large model answers on this CPU."""
    config = plan.config
    evaluated = [spec for spec in plan.requested if spec.name == "evaluate"]
    if not evaluated or store.problem(evaluated[0].key) is None:
        return
    family = family_of(config.model)
    if config.evaluate.program == "local" and not local.trains(family):
        rule = f"the embedded decoder does not compute {family.title}, so evaluate will fail"
        yield f"evaluate: {rule}; set evaluate.program=vllm and evaluate.python"
        return
    made, is_local = _evaluate(config), config.evaluate.program == "local"
    is_large = config.model.num_parameters > LARGE
    if made.seconds < LONG_S and not (is_local and is_large):
        return
    remedy = "lower evaluate.num_prompts, sample_prompts or num_samples"
    if is_local:
        remedy = "set evaluate.program=vllm evaluate.python=PYTHON, which answers on the cards, or " + remedy
        memory = 4 * config.model.num_parameters / 2**30
        what = f"the embedded decoder takes about {duration(made.seconds)} and {memory:.0f} GiB in float32"
    else:
        what = f"takes about {duration(made.seconds)}"
        remedy = "use more evaluate.layout.replicas, or " + remedy
    yield f"evaluate: {what} for {made.basis} ({cost.GENERATING}); {remedy}"


def notes(plan: Plan, store: Store) -> Iterator[str]:
    """Yield a note with the estimated durations of the stages that are still to run."""
    pending = {spec.name for spec in plan.missing(store)}
    made = estimates(plan.config).items()
    known = {name: each for name, each in made if name in pending and each.seconds >= NOTED_S}
    for name, each in known.items():
        yield f"{name}: estimated to take about {duration(each.seconds)}: {each.basis}"
    if known:
        yield f"estimates rest on {cost.GENERATING}"
