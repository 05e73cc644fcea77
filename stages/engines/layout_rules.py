"""Rules for layouts: of every engine, and of the engines that use mindformers' networks."""

from collections.abc import Iterator, Mapping

from stages.base.checks import divides, equal
from stages.base.errors import Problem
from stages.base.layout import RoleLayout
from stages.models.config import ModelConfig
from stages.models.families import family_of


def layout_problems(model: ModelConfig, layouts: Mapping[str, RoleLayout]) -> Iterator[Problem]:
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
    """Yield the problems of layouts for mindformers' networks, first those of `layout_problems`."""
    yield from layout_problems(model, layouts)
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
