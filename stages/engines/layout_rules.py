"""Rules for layouts: of every engine, and of the engines that use mindformers' networks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stages.base.checks import equal
from stages.base.errors import Problem
from stages.base.layout import RoleLayout
from stages.base.rules import Broken, Rules, divide
from stages.models.config import ModelConfig
from stages.models.families import family_of


@dataclass(frozen=True)
class Laid:
    """A model and the layouts of its roles."""

    model: ModelConfig
    layout: Mapping[str, RoleLayout]
    """Layouts by role."""

    def experts(self) -> int:
        """Return the number of experts per layer; 0 if there are none."""
        family = family_of(self.model)
        if family.experts is None:
            return 0
        if family.section is not None and self.model.extras is None:
            return 0  # stages.models.families.RULES reports it
        return family.experts(self.model).count


def layout_problems(model: ModelConfig, layouts: Mapping[str, RoleLayout]) -> Iterator[Problem]:
    """Yield a problem for each role that divides the experts of a model without experts."""
    if Laid(model, layouts).experts():
        return
    for role, layout in layouts.items():
        yield from equal(
            f"layout.{role}.expert_parallel",
            layout.expert_parallel,
            1,
            f"{family_of(model).title} has no experts",
            "ours: stages/models",
        )


RULES = Rules[Laid]("engine_layouts")
MINDFORMERS = Rules[Laid]("mindformers_layouts")


@RULES.row("layout.{}.expert_parallel", "ours: stages/models", each=lambda laid: laid.layout)
def _no_experts(laid: Laid, role: str) -> Broken:
    """Require expert_parallel=1 for a model without experts."""
    if laid.experts() or laid.layout[role].expert_parallel == 1:
        return None
    return f"{family_of(laid.model).title} has no experts", "set it to 1"


def sequence_parts(layout: RoleLayout) -> int:
    """Return the number of parts into which a layout of mindformers cuts a row.

    Ulysses adds none: mindrlhf's parallel_config has no key for it, and replaces that of the model file.
    """
    return layout.context_parallel * (layout.model_parallel if layout.use_seq_parallel else 1)


MINDFORMERS.include(RULES, lambda laid: laid)
for _name, _number, _label in (
    (
        "experts_among_replicas",
        lambda laid, role: laid.layout[role].data_parallel * laid.layout[role].model_parallel,
        "data_parallel x model_parallel",
    ),
    ("shared_experts", lambda laid, role: laid.experts(), "the {} experts"),
):
    MINDFORMERS.must(
        "layout.{}.expert_parallel",
        divide(_number, _label),
        "mindformers moev3.py, FFN; moe.py, check_moe_config",
        name=_name,
        each=lambda laid: laid.layout,
        when=lambda laid, role: laid.experts() > 0,
    )


@MINDFORMERS.row(
    "layout.{}.context_parallel", "ours: tried with MindSpore's front end", each=lambda laid: laid.layout
)
def _tied_context(laid: Laid, role: str) -> Broken:
    """Require vocab_emb_dp with tied embeddings and context_parallel above 1."""
    layout = laid.layout[role]
    if layout.context_parallel == 1 or layout.vocab_emb_dp or not laid.model.tie_word_embeddings:
        return None
    rule = "MindSpore refuses tied embeddings with context_parallel>1"
    return rule, f"set layout.{role}.vocab_emb_dp=true"
