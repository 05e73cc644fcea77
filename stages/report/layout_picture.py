"""Which card holds which layers and which slice of every weight, as coordinates of a drawing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.base.errors import ConfigError
from stages.base.layout import RoleLayout
from stages.base.reader import read

CELL_W, CELL_H, GAP, PAD, HEADER = 104.0, 62.0, 6.0, 8.0, 24.0
BAR_W = CELL_W - 20
MEMORY_H = 17.0
"""Additional height of a card whose memory is known."""
MAX_WIDTH = 980.0
MAX_CARDS = 64


@dataclass(frozen=True)
class Card:
    """One card: position in px and what lies on it."""

    x: float
    y: float
    rank: int
    start: float
    """The held slice of a split weight, as px from the left of the bar and width in px."""
    width: float
    label: str
    """Bytes of weights, or which slice where bytes are not known."""
    memory: str
    """Most memory that it needed, where that is known."""


@dataclass(frozen=True)
class Box:
    """One replica (the cards that hold the model's stage once) or one pipeline stage."""

    x: float
    y: float
    w: float
    h: float
    label: str


@dataclass(frozen=True)
class Picture:
    """One role's layout."""

    role: str
    name: str
    width: float
    height: float
    stages: tuple[Box, ...]
    replicas: tuple[Box, ...]
    cards: tuple[Card, ...]
    card_height: float
    alt: str
    facts: tuple[str, ...]


def picture(
    role: str,
    values: Mapping[str, Any],
    layers: int | None,
    weight_bytes: Mapping[int, str],
    peaks: Mapping[int, str] | None = None,
) -> Picture | None:
    """Draw one role; None where the values are no valid layout or above 64 cards.

    Args:
        role: train, generate or reference.
        values: the role's config, with MindSpore's key names.
        layers: num_hidden_layers of the model, None where unknown.
        weight_bytes: rank -> size of its weight files, ready to show.
        peaks: rank -> most memory that it needed, ready to show; None: not known.

    Rank order: pipeline stages outermost, then data_parallel, context_parallel, model_parallel
    (innermost), as MindSpore numbers its device matrix.
    """
    try:
        layout = read(RoleLayout, values, role)
    except ConfigError:
        return None
    if layout.cards > MAX_CARDS:
        return None
    shards = _optimizer_shards(layout)
    group = layout.model_parallel * layout.context_parallel
    card_h = CELL_H + (MEMORY_H if peaks else 0)
    columns = min(group, 8)
    rows = -(-group // columns)
    replica_w = columns * (CELL_W + GAP) - GAP + 2 * PAD
    replica_h = rows * (card_h + GAP) - GAP + PAD + HEADER
    per_line = max(1, min(layout.data_parallel, int((MAX_WIDTH - PAD) // (replica_w + GAP))))
    lines = -(-layout.data_parallel // per_line)
    stage_w = per_line * (replica_w + GAP) - GAP + 2 * PAD
    stage_h = lines * (replica_h + GAP) - GAP + PAD + HEADER
    stages, replicas, cards = [], [], []
    for s, held in enumerate(_layers(layout, layers)):
        top = s * (stage_h + GAP)
        stages.append(Box(0, top, stage_w, stage_h, held))
        for d in range(layout.data_parallel):
            x = PAD + d % per_line * (replica_w + GAP)
            y = top + HEADER + d // per_line * (replica_h + GAP)
            replicas.append(Box(x, y, replica_w, replica_h, f"replica {d}"))
            for g in range(group):
                rank = (s * layout.data_parallel + d) * group + g
                low, high = _slice(layout, d, g, shards)
                cx = x + PAD + g % columns * (CELL_W + GAP)
                cy = y + HEADER + g // columns * (card_h + GAP)
                held_part = "whole" if high - low == 1 else f"1/{round(1 / (high - low))}"
                label = weight_bytes.get(rank, held_part)
                held_slice = BAR_W * low, BAR_W * (high - low)
                cards.append(Card(cx, cy, rank, *held_slice, label, (peaks or {}).get(rank, "")))
    height = layout.pipeline_stage * (stage_h + GAP) - GAP
    facts = _facts(layout, shards)
    if peaks:
        facts = (*facts, "On each card: its weights, and the most memory that it needed.")
    alt = f"{role}: {layout.cards} card(s), {layout.name}. " + " ".join(facts)
    return Picture(
        role, layout.name, stage_w, height, tuple(stages), tuple(replicas), tuple(cards), card_h, alt, facts
    )


def _optimizer_shards(layout: RoleLayout) -> int:
    """Parts into which the parallel optimizer cuts a linear weight's slice (1: not at all)."""
    copies = layout.data_parallel * layout.context_parallel
    if not layout.enable_parallel_optimizer or copies == 1:
        return 1
    shards = copies if layout.optimizer_weight_shard_size == -1 else layout.optimizer_weight_shard_size
    return shards if shards > 1 and copies % shards == 0 else 1


def _slice(layout: RoleLayout, d: int, g: int, shards: int) -> tuple[float, float]:
    """Return the part (0 to 1 of the rows) of a column-split weight on replica d, card g of the group."""
    c, m = divmod(g, layout.model_parallel)
    part = (d * layout.context_parallel + c) % shards
    low = (m + part / shards) / layout.model_parallel
    return low, low + 1 / (layout.model_parallel * shards)


def _layers(layout: RoleLayout, layers: int | None) -> list[str]:
    """Return each pipeline stage's layers (L//pp + offset[s], as mindformers distributes them)."""
    stages = layout.pipeline_stage
    offset = (*layout.offset, *(0 for _ in range(stages)))
    counts = [(layers or 0) // stages + offset[s] for s in range(stages)]
    known = layers is not None and sum(counts) == layers and min(counts) > 0
    texts, first = [], 0
    for s, count in enumerate(counts):
        parts = ["embedding"] if s == 0 else []
        parts.append(_span(first, count) if known else "its layers")
        parts += ["norm", "head"] if s == stages - 1 else []
        texts.append((f"stage {s}: " if stages > 1 else "") + ", ".join(parts))
        first += count
    return texts


def _span(first: int, count: int) -> str:
    return f"layer {first}" if count == 1 else f"layers {first}–{first + count - 1}"


def _facts(layout: RoleLayout, shards: int) -> tuple[str, ...]:
    mp, dp, pp = layout.model_parallel, layout.data_parallel, layout.pipeline_stage
    message = "Linear weights are whole on every card."
    facts = [f"Every linear weight is cut into {mp} slices." if mp > 1 else message]
    if dp > 1:
        facts.append(f"{dp} replicas each work on their own part of the batch.")
    if pp > 1:
        facts.append(
            f"The layers lie on {pp} pipeline stages, fed by {layout.micro_batch_num} micro-batches."
        )
    if layout.context_parallel > 1:
        facts.append(f"Sequences are cut {layout.context_parallel} ways.")
    if layout.expert_parallel > 1:
        facts.append(f"Experts are spread over {layout.expert_parallel} replicas.")
    if shards > 1:
        facts.append(f"The parallel optimizer cuts each slice again, {shards} ways across the replicas.")
    names = {
        "recompute": layout.recompute,
        "selective recompute": layout.select_recompute,
        "optimizer state in host memory": layout.opt_offload,
        "sequence parallel": layout.use_seq_parallel,
        "embedding replicated": layout.vocab_emb_dp and mp > 1,
    }
    if any(names.values()):
        facts.append(f"On: {', '.join(name for name, on in names.items() if on)}.")
    return tuple(facts)
