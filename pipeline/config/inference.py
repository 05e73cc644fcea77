"""The program that answers in evaluate: what follows from the engine, and the rules of its keys."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline.cache import recall, remember
from pipeline.errors import Problem
from stages.base.checks import at_least, at_most, multiple_of
from stages.engines.upstream_keys import rendered_problems
from stages.grpo.config import EvaluateConfig, InferenceLayout
from stages.inference.arguments import RENDERED

if TYPE_CHECKING:
    from pipeline.config.composed import ComposedEvaluation
    from pipeline.config.sections import Config

PATH = "evaluate.layout.tensor_parallel"
SOURCE = "ours: stages/inference"
FOR_VLLM = ("python", "env", "dtype", "max_model_len", "gpu_memory_utilization", "upstream")
"""Keys without effect on local answers."""
ASK = "import importlib.util; print(importlib.util.find_spec('vllm') is not None)"
ASK_S = 60.0
"""Time limit of an interpreter's answer: its packages may be on a network file system."""


def on_one_card(composed: ComposedEvaluation) -> EvaluateConfig:
    """Return the section as it is before its nulls are derived."""
    return _with(composed, composed.program or "local", InferenceLayout(1, 1))


def derived(composed: ComposedEvaluation, config: Config) -> EvaluateConfig:
    """Return the section with its program and its layout, which follow from the engine's settings."""
    engine, layout = config.engine, composed.layout
    program = composed.program
    if program is None:
        python = composed.python or getattr(engine, "python", None)
        is_outside = engine.name != "local" and not getattr(engine, "container", ())
        program = "vllm" if is_outside and has_vllm(python, engine_path(config)) else "local"
    on_cpu = getattr(engine, "device_target", getattr(engine, "device", "npu")).lower() == "cpu"
    generate, launcher = config.layout.generate, config.launcher
    cards = min(generate.cards, launcher.cards_per_node) if launcher.on_one_machine else generate.cards
    most = min(generate.model_parallel, launcher.cards_per_node)
    cards, most = (1, 1) if on_cpu else (cards, most)
    shared = layout.tensor_parallel or max(
        degree for degree in range(1, most + 1) if generate.model_parallel % degree == 0
    )
    return _with(composed, program, InferenceLayout(shared, layout.replicas or max(1, cards // shared)))


def _with(
    composed: ComposedEvaluation, program: Literal["local", "vllm"], layout: InferenceLayout
) -> EvaluateConfig:
    names = (field.name for field in fields(EvaluateConfig) if field.name not in ("program", "layout"))
    return EvaluateConfig(program=program, layout=layout, **{name: getattr(composed, name) for name in names})


def engine_path(config: Config) -> str:
    """Return PYTHONPATH of vLLM's interpreter."""
    variables = {**getattr(config.engine, "env", {}), **config.evaluate.env}
    return str(variables.get("PYTHONPATH", ""))


def has_vllm(python: str | None, python_path: str = "") -> bool | None:
    """Return whether an interpreter on this machine has vLLM; None if it can't be asked.

    It is asked once, until it or its packages change.
    """
    if python is None:
        return None
    from launch.machine import checks  # here: most runs ask no interpreter

    path = checks.interpreter(python)
    return None if path is None or not Path(path).is_file() else _answer(path, python_path)


@functools.cache
def _answer(python: str, python_path: str) -> bool | None:
    from launch.machine import checks

    key = checks.state_of(python, ASK, python_path)
    known = recall("inference", key)
    if not isinstance(known, bool):
        printed = (checks.script_output(python, ("-c", ASK), python_path, ASK_S) or "").strip()
        if printed not in ("True", "False"):
            return None
        known = printed == "True"
        remember("inference", key, known)
    return known


def problems(config: Config) -> Iterator[Problem]:
    """Yield the problems of evaluate.program and of its keys."""
    evaluate = config.evaluate
    if evaluate.program == "local":
        for key in FOR_VLLM:
            if value := getattr(evaluate, key):
                rule = "has no effect: evaluate.program=local answers with the embedded decoder"
                remedy = "set evaluate.program=vllm, or leave it out"
                yield Problem(f"evaluate.{key}", value, rule, remedy, SOURCE)
        return
    yield from rendered_problems("evaluate.upstream", evaluate.upstream, RENDERED)
    yield from _interpreter(config)
    yield from _cards(config)
    if evaluate.max_model_len is not None:
        path, source = "evaluate.max_model_len", "vllm/config/model.py: max_model_len"
        longest = config.tokenize.max_prompt_length + config.rollout.max_tokens
        name = "tokenize.max_prompt_length + rollout.max_tokens"
        yield from at_least(path, evaluate.max_model_len, longest, name, "", source)
        most = config.model.max_position_embeddings
        yield from at_most(path, evaluate.max_model_len, most, "model.max_position_embeddings", "", source)


def _interpreter(config: Config) -> Iterator[Problem]:
    """Yield a problem if the interpreter is known to have no vLLM, or if none is named."""
    evaluate, engine = config.evaluate, config.engine
    key = "engine.python" if evaluate.python is None and engine.name != "local" else "evaluate.python"
    python = evaluate.python or getattr(engine, "python", None)
    if python is None and engine.name == "local":
        rule = "must be an interpreter with vLLM: evaluate.program=vllm starts it there"
        yield Problem(key, None, rule, "name one, or use evaluate.program=local", SOURCE)
    elif not getattr(engine, "container", ()) and has_vllm(python, engine_path(config)) is False:
        rule = "has no package vllm, in which evaluate.program=vllm answers"
        yield Problem(key, python, rule, "set evaluate.python to an interpreter that has it", SOURCE)


def _cards(config: Config) -> Iterator[Problem]:
    """Yield problems of the layout: heads, and the cards of the machines."""
    layout, launcher = config.evaluate.layout, config.launcher
    shared, per_node = layout.tensor_parallel, launcher.cards_per_node
    heads, source = config.model.num_attention_heads, "vllm/config/model.py: verify_with_parallel_config"
    if heads % shared:
        rule = f"must divide num_attention_heads={heads}"
        fitting = [degree for degree in range(1, shared) if heads % degree == 0]
        yield Problem(PATH, shared, rule, f"use {fitting[-1]}", source)
    one_machine = "the cards of a replica are in one machine"
    yield from at_most(PATH, shared, per_node, "launcher.cards_per_node", one_machine, SOURCE)
    if launcher.on_one_machine:
        yield from at_most(
            "evaluate.layout", layout.cards, per_node, "launcher.cards_per_node",
            "evaluate runs on one machine", SOURCE, "use fewer replicas, or raise launcher.cards_per_node",
        )  # fmt: skip
        return
    yield from at_most(
        "evaluate.layout", layout.cards, config.cards, "cards", "it takes no more than the run has", SOURCE,
        "use fewer replicas",
    )  # fmt: skip
    if layout.cards > per_node:
        yield from multiple_of("launcher.cards_per_node", per_node, shared, PATH, one_machine, SOURCE)
