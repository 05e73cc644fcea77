"""What mindformers, mindrlhf and MindSpore ask of layouts; places as in stages/engines/mindrlhf/rules.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stages.base.layout import RoleLayout
from stages.base.rules import Broken, Rules, at_least, be, divide, multiple_of
from stages.models.config import ModelConfig
from stages.models.families import family_of


@dataclass(frozen=True)
class Laid:
    """A model on the cards of its roles."""

    model: ModelConfig
    layout: Mapping[str, RoleLayout]
    """By role."""
    seq_length: int
    """Of a row in training."""

    def experts(self) -> int:
        """Of one layer; 0: none."""
        count = family_of(self.model).num_experts
        return count(self.model) if count else 0


MINDFORMERS = Rules[Laid]("mindformers_layouts")
"""What holds for every network of mindformers."""
MINDRLHF = Rules[Laid]("mindrlhf_layouts")
"""What holds for mindrlhf's GRPO besides, its one-stage script too."""


def sequence_parts(layout: RoleLayout) -> int:
    """Parts that a layout cuts a row into.

    Ulysses adds none: mindrlhf's parallel_config has no key for it, and replaces the model file's own.
    """
    return layout.context_parallel * (layout.model_parallel if layout.use_seq_parallel else 1)


def _replicas(laid: Laid, role: str) -> int:
    return laid.layout[role].data_parallel * laid.layout[role].model_parallel


@MINDFORMERS.row("layout.{}.expert_parallel", "ours: stages/models", each=lambda laid: laid.layout)
def _no_experts(laid: Laid, role: str) -> Broken:
    if laid.experts() or laid.layout[role].expert_parallel == 1:
        return None
    return f"{family_of(laid.model).title} has no experts", "set it to 1"


MINDFORMERS.must(
    "layout.{}.expert_parallel",
    divide(_replicas, "data_parallel x model_parallel"),
    "mindformers moev3.py, FFN",
    name="experts_among_replicas",
    each=lambda laid: laid.layout,
    when=lambda laid, role: laid.experts() > 0,
)
MINDFORMERS.must(
    "layout.{}.expert_parallel",
    divide(lambda laid, role: laid.experts(), "the {} experts"),
    "mindformers moev3.py, FFN; moe.py, check_moe_config",
    name="shared_experts",
    each=lambda laid: laid.layout,
    when=lambda laid, role: laid.experts() > 0,
)


@MINDFORMERS.row("layout.{}.context_parallel", "ours: its front end was asked", each=lambda laid: laid.layout)
def _tied_context(laid: Laid, role: str) -> Broken:
    layout = laid.layout[role]
    if layout.context_parallel == 1 or layout.vocab_emb_dp or not laid.model.tie_word_embeddings:
        return None
    rule = "MindSpore refuses tied embeddings with context_parallel>1"
    return rule, f"set layout.{role}.vocab_emb_dp=true"


MINDRLHF.include(MINDFORMERS, lambda laid: laid)
MINDRLHF.must(
    "layout.generate.pipeline_stage",
    be(1, "generation must not be pipelined", "set it to 1 and raise model_parallel or data_parallel"),
    "infer_worker.py, reshard_optimizer.py; one stage: its README.md",
)
MINDRLHF.must(
    "layout.train.opt_offload",
    be(
        False,
        "the optimizer of this setting wants the norm of the gradients besides (mindrlhf/utils/adam.py:161), "
        "which the training cell does not give it",
        "set it to false; between updates mindrlhf moves the optimizer to the host anyhow",
    ),
    "mindformers wrapper/wrapper.py:281; at 0cd087455 and before mindrlhf/wrapper/wrapper.py, enable_offload",
)
MINDRLHF.must(
    "layout.train.micro_batch_num",
    at_least(
        lambda laid: laid.layout["train"].pipeline_stage,
        "pipeline_stage",
        "so many micro-batches fill the pipeline",
        "set it to pipeline_stage, or null",
    ),
    "MindSpore's cell_wrapper.py, PipelineCell",
)


MINDRLHF.must(
    "engine.seq_length",
    multiple_of(
        lambda laid, role: sequence_parts(laid.layout[role]),
        why="the parts that a layout cuts a sequence into",
        remedy="leave it null",
    ),
    "ours: MindSpore cuts evenly",
    each=lambda laid: laid.layout,
    value=lambda laid, role: laid.seq_length,
)
