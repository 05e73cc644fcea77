"""Rules for layouts: of every engine, and of the engines that use mindformers' networks."""

import re
from collections.abc import Iterator, Mapping

from stages.base.checks import divides, equal
from stages.base.errors import Problem
from stages.base.layout import RoleLayout
from stages.models.config import ModelConfig
from stages.models.families import family_of

LAYER_SETTING = "mindformers models/utils.py, LayerSetting"
_UNESCAPED = re.compile(r"\w\.(?=[A-Za-z_])")
"""A dot between two names of a pattern of operators, without the backslash that separates them."""


def layout_problems(model: ModelConfig, layouts: Mapping[str, RoleLayout]) -> Iterator[Problem]:
    """Yield the problems of layouts for networks that are not mindformers'."""
    yield from _expert_problems(model, layouts)
    for role, layout in layouts.items():
        for key in ("recompute", "select_recompute"):
            if not isinstance(value := getattr(layout, key), bool):
                shown = list(value) if isinstance(value, tuple) else dict(value)
                rule = "must be true or false: only mindformers' networks take numbers of layers"
                remedy = "set it to true or false, or train with engine=mindrlhf"
                yield Problem(f"layout.{role}.{key}", shown, rule, remedy, LAYER_SETTING)


def _expert_problems(model: ModelConfig, layouts: Mapping[str, RoleLayout]) -> Iterator[Problem]:
    """Yield a problem for each role that divides the experts of a model without experts."""
    if experts_of(model):
        return
    for role, layout in layouts.items():
        yield from equal(
            f"layout.{role}.expert_parallel",
            layout.expert_parallel,
            1,
            f"{family_of(model).title} has no experts",
            "ours: stages/models",
        )


def mindformers_layout_problems(model: ModelConfig, layouts: Mapping[str, RoleLayout]) -> Iterator[Problem]:
    """Yield the problems of layouts for mindformers' networks."""
    yield from _expert_problems(model, layouts)
    for role, layout in layouts.items():
        yield from _recompute_problems(role, layout)
    source = "mindformers moev3.py, FFN; moe.py, check_moe_config"
    for role, layout in layouts.items():
        if experts := experts_of(model):
            path, parts = f"layout.{role}.expert_parallel", layout.expert_parallel
            replicas = layout.data_parallel * layout.model_parallel
            yield from divides(path, parts, replicas, "data_parallel x model_parallel", "", source)
            yield from divides(path, parts, experts, "the {} experts", "", source)
        if layout.context_parallel > 1 and model.tie_word_embeddings and not layout.vocab_emb_dp:
            yield Problem(
                f"layout.{role}.context_parallel",
                layout.context_parallel,
                "MindSpore refuses tied embeddings with context_parallel>1",
                f"set layout.{role}.vocab_emb_dp=true",
                "ours: tried with MindSpore's front end",
            )


def _recompute_problems(role: str, layout: RoleLayout) -> Iterator[Problem]:
    """Yield the problems of layers and operators to recompute.

    Of a list that is too long mindformers dies; for a stage that a list leaves out, and for a pattern that
    names no operator, it recomputes nothing, silently.
    """
    by_operator = layout.select_recompute if isinstance(layout.select_recompute, Mapping) else {}
    values = {"recompute": layout.recompute, **{f"select_recompute.{k}": v for k, v in by_operator.items()}}
    if not isinstance(layout.select_recompute, Mapping):
        values["select_recompute"] = layout.select_recompute
    stages = layout.pipeline_stage
    for key, value in values.items():
        if not isinstance(value, bool) and len(value) != stages:
            rule = f"must have one number of layers for each of the pipeline_stage={stages} stages"
            remedy = f"give {stages} number(s), or true for all layers"
            yield Problem(f"layout.{role}.{key}", list(value), rule, remedy, LAYER_SETTING)
    for pattern in by_operator:
        fault = None
        try:
            [re.compile(part) for part in pattern.split(r"\.")]
        except re.error as error:
            fault = f"is no regular expression: {error}", "correct it"
        if fault is None and _UNESCAPED.search(pattern):
            fault = r"names no operator: \. separates the names of cells", r"write it as in feed_forward\.mul"
        if fault is not None:
            yield Problem(f"layout.{role}.select_recompute", pattern, *fault, LAYER_SETTING)


def experts_of(model: ModelConfig) -> int:
    """Return the number of experts per layer; 0 if there are none."""
    family = family_of(model)
    if family.experts is None:
        return 0
    if family.section is not None and model.extras is None:
        return 0  # family_problems reports it
    return family.experts(model).count


def sequence_parts(layout: RoleLayout) -> int:
    """Return the number of parts into which a layout of mindformers cuts a row.

    Ulysses adds none: mindrlhf's parallel_config has no key for it, and replaces that of the model file.
    """
    return layout.context_parallel * (layout.model_parallel if layout.use_seq_parallel else 1)
