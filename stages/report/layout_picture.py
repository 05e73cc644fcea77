"""Picture of a layout: the layers and the slice of every weight on each card, as coordinates of a drawing."""

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
    """Position of one card in px, and its content."""

    x: float
    y: float
    rank: int
    start: float
    """The slice of a split weight on this card: px from the left of the bar, and width in px."""
    width: float
    label: str
    """Bytes of weights, or the slice if bytes are not known."""
    memory: str
    """Peak memory, if known."""


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
    """The layout of one role; drawing.html draws it and describes it in words."""

    role: str
    layout: RoleLayout
    shards: int
    """Number of parts into which the parallel optimizer cuts each slice."""
    width: float
    height: float
    stages: tuple[Box, ...]
    replicas: tuple[Box, ...]
    cards: tuple[Card, ...]
    card_height: float


def picture(
    role: str,
    values: Mapping[str, Any],
    layers: int | None,
    weight_bytes: Mapping[int, str],
    peaks: Mapping[int, str] | None = None,
) -> Picture | None:
    """Arrange the cards of one role; return None for an invalid layout or above 64 cards.

    Args:
        role: train, generate or reference.
        values: the role's config, with MindSpore's key names.
        layers: num_hidden_layers of the model; None if unknown.
        weight_bytes: rank -> size of its weight files, ready to show.
        peaks: rank -> its peak memory, ready to show; None if unknown.

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
    replica_w = columns * (CELL_W + GAP) - GAP + 2 * PAD
    replica_h = -(-group // columns) * (card_h + GAP) - GAP + PAD + HEADER
    per_line = max(1, min(layout.data_parallel, int((MAX_WIDTH - PAD) // (replica_w + GAP))))
    stage_w = per_line * (replica_w + GAP) - GAP + 2 * PAD
    stage_h = -(-layout.data_parallel // per_line) * (replica_h + GAP) - GAP + PAD + HEADER
    stages, replicas, cards = [], [], []
    for s, label in enumerate(_layers(layout, layers)):
        top = s * (stage_h + GAP)
        stages.append(Box(0, top, stage_w, stage_h, label))
        for d in range(layout.data_parallel):
            x = PAD + d % per_line * (replica_w + GAP)
            y = top + HEADER + d // per_line * (replica_h + GAP)
            replicas.append(Box(x, y, replica_w, replica_h, f"replica {d}"))
            for g in range(group):
                rank = (s * layout.data_parallel + d) * group + g
                low, size = _slice(layout, d, g, shards)
                card_x = x + PAD + g % columns * (CELL_W + GAP)
                card_y = y + HEADER + g // columns * (card_h + GAP)
                label = weight_bytes.get(rank, "whole" if size == 1 else f"1/{round(1 / size)}")
                memory = (peaks or {}).get(rank, "")
                cards.append(Card(card_x, card_y, rank, BAR_W * low, BAR_W * size, label, memory))
    height = layout.pipeline_stage * (stage_h + GAP) - GAP
    return Picture(
        role, layout, shards, stage_w, height, tuple(stages), tuple(replicas), tuple(cards), card_h
    )


def _optimizer_shards(layout: RoleLayout) -> int:
    """Return the number of parts into which the parallel optimizer cuts a linear weight's slice."""
    copies = layout.data_parallel * layout.context_parallel
    if not layout.enable_parallel_optimizer or copies == 1:
        return 1
    shards = copies if layout.optimizer_weight_shard_size == -1 else layout.optimizer_weight_shard_size
    return shards if shards > 1 and copies % shards == 0 else 1


def _slice(layout: RoleLayout, d: int, g: int, shards: int) -> tuple[float, float]:
    """Return start and size (shares of the rows) of a column-split weight on replica d, card g of it."""
    c, m = divmod(g, layout.model_parallel)
    part = (d * layout.context_parallel + c) % shards
    return (m + part / shards) / layout.model_parallel, 1 / (layout.model_parallel * shards)


def _layers(layout: RoleLayout, layers: int | None) -> list[str]:
    """Return each pipeline stage's layers (L//pp + offset[s], as mindformers distributes them)."""
    stages = layout.pipeline_stage
    offset = (*layout.offset, *(0 for _ in range(stages)))
    counts = [(layers or 0) // stages + offset[s] for s in range(stages)]
    known = layers is not None and sum(counts) == layers and min(counts) > 0
    labels, first = [], 0
    for s, count in enumerate(counts):
        parts = ["embedding"] if s == 0 else []
        parts.append(_span(first, count) if known else "its layers")
        parts += ["norm", "head"] if s == stages - 1 else []
        labels.append((f"stage {s}: " if stages > 1 else "") + ", ".join(parts))
        first += count
    return labels


def _span(first: int, count: int) -> str:
    return f"layer {first}" if count == 1 else f"layers {first}–{first + count - 1}"
