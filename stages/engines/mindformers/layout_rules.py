"""Rules of mindformers and MindSpore for layouts of every network."""

from stages.base.layout import RoleLayout
from stages.base.rules import Broken, Rules, divide
from stages.engines import layout_rules
from stages.engines.layout_rules import Laid

RULES = Rules[Laid]("mindformers_layouts")


def sequence_parts(layout: RoleLayout) -> int:
    """Return the number of parts into which a layout cuts a row.

    Ulysses adds none: mindrlhf's parallel_config has no key for it, and replaces that of the model file.
    """
    return layout.context_parallel * (layout.model_parallel if layout.use_seq_parallel else 1)


def _replicas(laid: Laid, role: str) -> int:
    return laid.layout[role].data_parallel * laid.layout[role].model_parallel


RULES.include(layout_rules.RULES, lambda laid: laid)
RULES.must(
    "layout.{}.expert_parallel",
    divide(_replicas, "data_parallel x model_parallel"),
    "mindformers moev3.py, FFN",
    name="experts_among_replicas",
    each=lambda laid: laid.layout,
    when=lambda laid, role: laid.experts() > 0,
)
RULES.must(
    "layout.{}.expert_parallel",
    divide(lambda laid, role: laid.experts(), "the {} experts"),
    "mindformers moev3.py, FFN; moe.py, check_moe_config",
    name="shared_experts",
    each=lambda laid: laid.layout,
    when=lambda laid, role: laid.experts() > 0,
)


@RULES.row(
    "layout.{}.context_parallel", "ours: tried with MindSpore's front end", each=lambda laid: laid.layout
)
def _tied_context(laid: Laid, role: str) -> Broken:
    layout = laid.layout[role]
    if layout.context_parallel == 1 or layout.vocab_emb_dp or not laid.model.tie_word_embeddings:
        return None
    rule = "MindSpore refuses tied embeddings with context_parallel>1"
    return rule, f"set layout.{role}.vocab_emb_dp=true"
