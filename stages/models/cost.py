"""What a training layout costs besides memory: bytes that a card sends, idle time of the pipeline.

Only good for ordering layouts of one model: bandwidths and speed are nominal, and were not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stages.base.layout import RoleLayout
from stages.models.config import ITEM_BYTES, ModelConfig
from stages.models.memory import elements

NODE_CARDS = 8
IN_NODE_BYTES_S, BETWEEN_NODES_BYTES_S = 150e9, 25e9
"""Per card: several HCCS links; one RoCE port of 200 Gb/s. Nominal."""
CARD_FLOP_S = 125e12
"""40 % of a 910B's bfloat16 peak. Nominal."""
ASSUMED = (
    f"computing at {CARD_FLOP_S / 1e12:.0f} TFLOP/s, stretched by the bubble, and sending at "
    f"{IN_NODE_BYTES_S / 1e9:.0f} GB/s within {NODE_CARDS} cards, {BETWEEN_NODES_BYTES_S / 1e9:.0f} beyond: "
    "nominal figures, for the order only"
)
_BYTES = 2  # activations travel in bfloat16


@dataclass(frozen=True)
class Cost:
    """One training step (all updates on one batch of completions) of one layout."""

    sent: Mapping[str, int]
    """Bytes that a card sends: tensor, context, pipeline (activations) and data (gradients)."""
    bubble: float
    """Share of the time in which a card waits for other pipeline stages."""
    seconds: float
    """Estimate by which layouts are ordered; see ASSUMED."""


def cost(model: ModelConfig, layout: RoleLayout, tokens: int, updates: int) -> Cost:
    """Cost of training on `tokens` tokens in `updates` updates, with ring collectives.

    Source: arXiv:2104.04473, section 3 (tensor and pipeline parallel volume, bubble).
    """
    dp, mp, pp, cp = (
        layout.data_parallel, layout.model_parallel, layout.pipeline_stage, layout.context_parallel,
    )  # fmt: skip
    held = max(stage.gathered for stage in elements(model, layout))
    tokens_per_card, layers = tokens / (dp * cp), model.num_hidden_layers / pp
    again = int(layout.recompute)
    stream = tokens_per_card * model.hidden_size * _BYTES
    keys = tokens_per_card * 2 * model.num_key_value_heads * model.head_size / mp * _BYTES
    copies = dp * cp
    volume = {
        # two sums of the residual stream per layer forward, two backward, and forward again
        "tensor": layers * (4 + 2 * again) * 2 * (mp - 1) / mp * stream,
        # every other card's keys and values: forward, backward, and their gradients
        "context": layers * (3 + again) * (cp - 1) * keys,
        "pipeline": 2 * stream if pp > 1 else 0.0,
        "data": updates * 2 * (copies - 1) / copies * held * ITEM_BYTES[model.param_init_type],
    }
    # Ranks count model_parallel innermost, then context, data and pipeline: so far apart is each group.
    spans = {"tensor": mp, "context": mp * cp, "data": mp * cp * dp, "pipeline": mp * cp * dp * 2}
    waits = {
        name: size / (IN_NODE_BYTES_S if spans[name] <= NODE_CARDS else BETWEEN_NODES_BYTES_S)
        for name, size in volume.items()
    }
    bubble = (pp - 1) / (layout.micro_batch_num + pp - 1)
    computing = (6 + 2 * again) * model.active_parameters * tokens / layout.cards / CARD_FLOP_S
    within = computing + waits["tensor"] + waits["context"] + waits["pipeline"]
    return Cost(
        {name: int(size) for name, size in volume.items()}, bubble, within / (1 - bubble) + waits["data"]
    )
