"""What training and generating cost besides memory: bytes that a card sends, idle time, seconds.

Only good for ordering layouts of one model, and for the order of magnitude of a stage's duration: bandwidths
and speeds are nominal, and were not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stages.base.layout import RoleLayout
from stages.models.config import ITEM_BYTES, ModelConfig
from stages.models.layouts import stages_of_layers
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
CARD_BYTES_S = 0.8e12
"""Half of a 910B's memory bandwidth, at which a decoding step reads the weights. Nominal."""
CORE_FLOP_S = 25e9
"""A core's matrix products in float32, about a quarter of the peak with AVX2. Nominal."""
OPENING_S = 60.0
"""Seconds until vLLM has loaded a model and answers. Nominal."""
GENERATING = (
    f"{CORE_FLOP_S / 1e9:.0f} GFLOP/s per core of a CPU; on cards {CARD_FLOP_S / 1e12:.0f} TFLOP/s, weights "
    f"read at {CARD_BYTES_S / 1e12:.1f} TB/s per token: nominal figures, for the order of magnitude only; "
    "completions of full length"
)
"""What the estimates of `generation` rest on."""
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
    stages = stages_of_layers(model, layout)
    counts = [stages.count(stage) for stage in range(pp)]
    again = sum(map(layout.recomputed, range(pp), counts)) / len(stages)
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


@dataclass(frozen=True)
class Generation:
    """Completions that a model generates, all of full length."""

    prompts: int
    """Prompts that are read, each once."""
    prompt_tokens: int
    """Tokens of a prompt."""
    completions: int
    tokens: int
    """Tokens of a completion."""
    batch: int
    """Completions that a copy of the model generates at once."""

    @property
    def computed(self) -> int:
        """Tokens that are computed."""
        return self.prompts * self.prompt_tokens + self.completions * self.tokens


def generation_on_cpu(model: ModelConfig, work: Generation, cores: int) -> float:
    """Return the seconds that a CPU generates; see GENERATING."""
    return 2.0 * model.active_parameters * work.computed / (cores * CORE_FLOP_S)


def generation_on_cards(model: ModelConfig, work: Generation, shared: int, replicas: int) -> float:
    """Return the seconds that `replicas` copies generate, each on `shared` cards; see GENERATING.

    Each token of a batch takes the time to read the weights, or to compute with them if that is longer.
    """
    operations = 2.0 * model.active_parameters / (shared * CARD_FLOP_S)
    reading = model.active_parameters * _BYTES / (shared * CARD_BYTES_S)
    rounds = -(-work.completions // (work.batch * replicas))
    steps = rounds * work.tokens * max(reading, work.batch * operations)
    return steps + work.prompts * work.prompt_tokens * operations / replicas
