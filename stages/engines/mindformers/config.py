"""Settings of engine.sft=mindformers. Defaults: conf/mindformers/default.yaml."""

from dataclasses import dataclass
from typing import Annotated

from stages.base.bounds import NonNegative, Positive, Share
from stages.base.identity import CheckoutDirectory
from stages.engines.config import OutsideProgram, UpstreamKeys
from stages.grpo.config import AdamConfig


@dataclass(frozen=True)
class MindformersConfig(AdamConfig, OutsideProgram):
    """mindformers' supervised training (run_mindformer.py) under msrun, on layout.train's cards.

    Settings of this machine are those of the engine by default.
    """

    home: Annotated[str | None, CheckoutDirectory()]
    """The checkout; null: plan and run --render write a placeholder, run refuses."""
    epochs: Positive
    """Passes over the examples (shipped YAML: 2)."""
    batch_size: Positive
    """Examples per update, of all cards together."""
    examples_per_card: Positive
    """Examples that a replica computes at once (shipped YAML: 1). It divides its share of a batch into
    steps of gradient accumulation or, with a pipeline, micro-batches. On one card mindformers accumulates
    nothing: there it computes all examples of an update at once."""
    micro_batch_interleave_num: Positive
    """Parts of a replica's batch that are computed while others communicate, each with examples_per_card
    examples; for model_parallel above 1 (shipped YAML: 1)."""
    gradient_aggregation_group: Positive
    """Groups in which gradients are exchanged without a pipeline (shipped YAML: 4)."""
    warmup_ratio: Share | None
    """Part of all updates in which the rate rises; null: warmup_steps says how many."""
    checkpoint_every: NonNegative
    """Updates between checkpoints, from which a killed run resumes; 0: only one at the end."""
    keep_checkpoints: Positive
    """Checkpoints to keep, each with weights and both Adam moments; older ones are removed."""
    device_memory_gib: Positive
    """context.max_device_memory of a card (shipped YAML: 58, for cards of 64 GiB)."""
    upstream: UpstreamKeys
    """More keys of mindformers' YAML, merged last: train.SECTION.KEY; engine.upstream.train is moved here."""


SETTINGS = MindformersConfig
