"""Memory of one card for each role: every term with its formula.

Weights, gradients and optimizer state are exact: their elements come from the layouts that the strategy
stage writes. Terms that a graph compiler decides, mainly activations, are estimated as a range: low counts
what the backward pass requires, high adds the copies that operators usually store.
No estimate of this module was ever measured on an NPU.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stages.base.layout import RoleLayout
from stages.models.config import ITEM_BYTES, ModelConfig
from stages.models.families import family_of
from stages.models.family import Cut, Weight
from stages.models.layouts import check_shape, kinds_of_layers, stages_of_layers, weight_layout

GIB = 2**30
Place = Literal["card", "host"]
Fits = Literal["yes", "maybe", "no"]
SERVER = ("weights", "activations", "KV cache")
"""Terms of the role generate that are vLLM's own."""


@dataclass(frozen=True)
class Term:
    """One part of a role's memory."""

    name: str
    low: int
    """Bytes at least."""
    high: int
    """Bytes at most; equal to low where the term is exact."""
    formula: str
    place: Place = "card"
    """Memory that it occupies while the role works."""

    @property
    def exact(self) -> bool:
        """True if the term is counted, not estimated."""
        return self.low == self.high


@dataclass(frozen=True)
class RoleMemory:
    """Memory that a role needs during its work."""

    role: str
    """train, generate, reference, or reshard: the moment in which weights move between layouts."""
    pipeline_stage: int
    """The stage whose cards need most."""
    terms: tuple[Term, ...]

    @property
    def low(self) -> int:
        """Bytes on the card at least."""
        return sum(term.low for term in self.terms if term.place == "card")

    @property
    def high(self) -> int:
        """Bytes on the card at most."""
        return sum(term.high for term in self.terms if term.place == "card")

    def fits(self, bytes_per_card: int) -> Fits:
        """Return yes if even the high estimate fits, maybe if only the low one does."""
        return "yes" if self.high <= bytes_per_card else "maybe" if self.low <= bytes_per_card else "no"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        terms = [
            {
                "name": term.name, "low_bytes": term.low, "high_bytes": term.high, "exact": term.exact,
                "place": term.place, "formula": term.formula,
            }
            for term in self.terms
        ]  # fmt: skip
        return {
            "role": self.role, "pipeline_stage": self.pipeline_stage, "low_bytes": self.low,
            "high_bytes": self.high, "terms": terms,
        }  # fmt: skip


@dataclass(frozen=True)
class Elements:
    """Elements of weights on each card of one pipeline stage."""

    held: int
    """Elements that a card stores, as split writes them into its rank directory."""
    gathered: int
    """Elements before the parallel optimizer divides them among replicas: what a card computes with."""
    layers: int


@functools.lru_cache(maxsize=4096)  # shared by the points of a sweep
def elements(model: ModelConfig, layout: RoleLayout, path: str = "layout") -> tuple[Elements, ...]:
    """Return the elements per card, for each pipeline stage.

    Raises:
        ConfigError: the layout does not fit the model.
    """
    stages = stages_of_layers(model, layout, path)
    counts = [stages.count(stage) for stage in range(layout.pipeline_stage)]
    check_shape(model, layout, path)
    # Only one layer of each kind is computed, and counted as often as it occurs in a stage.
    kinds = kinds_of_layers(model)
    of_kind = [_card(weights, model, layout) for weights in kinds.weights]
    first, last = (
        _card([weight for weight in kinds.around if (weight.cut is Cut.EMBEDDING) == leading], model, layout)
        for leading in (True, False)
    )
    elements, start = [], 0
    for stage, count in enumerate(counts):
        parts = [of_kind[kind] for kind in kinds.of_layer[start : start + count]]
        parts += [first] * (stage == 0) + [last] * (stage == len(counts) - 1)
        elements.append(
            Elements(sum(held for held, _ in parts), sum(gathered for _, gathered in parts), count)
        )
        start += count
    return tuple(elements)


def _card(listed: Sequence[Weight], model: ModelConfig, layout: RoleLayout) -> tuple[int, int]:
    """Return the elements of weights on a card: stored, and before the parallel optimizer divides them."""
    held = gathered = 0
    for weight in listed:
        tensor = weight_layout(weight, model, layout)
        part = math.prod(weight.shape) // math.prod(tensor.parts)
        gathered += part
        held += part // tensor.optimizer_parts
    return held, gathered


def weights(held: int, dtype: str) -> Term:
    """Return the memory of a card's weights."""
    return sized("weights", held, dtype)


def sized(name: str, held: int, dtype: str) -> Term:
    """Return a term with as many elements as a card stores of the model."""
    return exact(name, held * ITEM_BYTES[dtype], f"{held:,} elements x {ITEM_BYTES[dtype]} ({dtype})")


def exact(name: str, size: int, formula: str, place: Place = "card") -> Term:
    """Return a term without a range."""
    return Term(name, size, size, formula, place)


def token_elements(model: ModelConfig, layout: RoleLayout) -> tuple[float, str]:
    """Return the elements of one layer's activations per token and card that its backward pass reads.

    Residual stream and normed values before attention and before the feed-forward layer (4 hidden);
    queries, keys and values, the attended values; gate, up, activated gate and their product.
    Attention scores are never stored (flash attention). The way of counting is that of
    arXiv:2205.05198, section 4, for Llama's layer.
    """
    mp, family = layout.model_parallel, family_of(model)
    split = mp if layout.use_seq_parallel else 1
    heads = family.heads(model)
    inner = 2 if layout.select_recompute else 4  # without activated gate and product
    width, parts = model.intermediate_size, mp
    if family.experts is not None:  # a token's experts, none of which is cut
        width, parts = family.experts(model).intermediate_size, 1
    per_token = 4 * model.hidden_size / split + heads.computed / mp + inner * width / parts
    text = f"(4 hidden / {split} + ({heads.formula}) / {mp} + {inner} intermediate / {parts})"
    return per_token, text


def moments(held: int, dtype: str, on_host: bool) -> Term:
    """Return the memory of both moments of mindrlhf's AdamW.

    AdamWeightDecayOp, the host's, clones bfloat16 parameters as they are; others keep float32.
    """
    item = ITEM_BYTES[dtype] if on_host and dtype == "bfloat16" else 4
    formula = f"2 moments x {held:,} elements x {item}"
    return exact("optimizer", 2 * held * item, formula, "host" if on_host else "card")


def activations(
    model: ModelConfig, layout: RoleLayout, tokens: int, layers: int, in_flight: int, stage: int = 0
) -> Term:
    """Return the memory of activations that the backward pass needs.

    Args:
        model: the model.
        layout: of the role.
        tokens: of one micro-batch on one card, cut by context_parallel already.
        layers: of the pipeline stage.
        in_flight: micro-batches whose backward pass is still to come.
        stage: number of the pipeline stage.
    """
    per_token, text = token_elements(model, layout)
    note = "x 2 (bfloat16), at most x 4 (float32 copies); estimate"
    recomputed = layout.recomputed(stage, layers)
    kept = layers - recomputed
    hidden = model.hidden_size * recomputed * in_flight
    parts = []
    if recomputed:
        parts.append(f"hidden x {recomputed} layers x {in_flight} micro-batches in flight + one layer {text}")
    if kept:
        parts.append(f"{kept} layers x {in_flight} in flight x {text}")
    inner = " + ".join(parts)
    formula = f"{tokens:,} tokens x {f'({inner})' if recomputed else inner} {note}"
    size = tokens * (hidden + per_token * (bool(recomputed) + kept * in_flight))
    return Term("activations", int(2 * size), int(4 * size), formula)


def working_set(model: ModelConfig, layout: RoleLayout, tokens: int) -> Term:
    """Return the memory of a forward pass without backward pass: the activations of one layer."""
    per_token, text = token_elements(model, layout)
    formula = f"{tokens:,} tokens x one layer {text} x 2 (bfloat16), at most x 4 (float32); estimate"
    return Term("activations", int(2 * tokens * per_token), int(4 * tokens * per_token), formula)


def logits(model: ModelConfig, layout: RoleLayout, tokens: int, high: int) -> Term:
    """Return the memory of the head's output for a card's tokens, which only the last pipeline stage has.

    `high`: float32 copies at most: logits and log-softmax, and in training their gradient.
    """
    replicated = layout.vocab_emb_dp or model.vocab_size % layout.model_parallel != 0
    parts = 1 if replicated else layout.model_parallel
    size = tokens * model.vocab_size // parts * 4
    formula = f"{tokens:,} tokens x vocabulary / {parts} x 4 (float32), 1 to {high} copies; estimate"
    return Term("logits", size, high * size, formula)


def cache_bytes_per_token(model: ModelConfig, layout: RoleLayout, dtype: str) -> int:
    """Return the bytes of all layers' keys and values for one token on one card."""
    heads = family_of(model).heads(model)
    cached = heads.cached // (layout.model_parallel if heads.cut else 1)
    return model.num_hidden_layers * cached * ITEM_BYTES[dtype]


def warnings(roles: Sequence[RoleMemory], device_memory_gib: int) -> list[str]:
    """Return a warning for each role that may not fit into a card, with its largest term."""
    lines = []
    for role in roles:
        fits = role.fits(device_memory_gib * GIB)
        if fits == "yes":
            continue
        term = max((t for t in role.terms if t.place == "card"), key=lambda t: t.high)
        verdict = "does not fit" if fits == "no" else "may not fit"
        lines.append(
            f"memory: {role.role} {verdict} into engine.device_memory_gib={device_memory_gib}: "
            f"{shown(role.low, role.high)} a card, most of it {term.name} ({shown(term.low, term.high)})"
        )
    return lines


def server_bytes(utilization: float, device_memory_gib: int) -> int:
    """Return what vLLM takes of a card. `utilization`: engine.gpu_memory_utilization."""
    return int(utilization * device_memory_gib * GIB)


def server_cache(
    taken: Sequence[Term], per_token: int, longest: int, utilization: float, device_memory_gib: int
) -> Term:
    """Return vLLM's keys and values: at least those of one sequence, at most what its share of a card leaves.

    Args:
        taken: what else it holds.
        per_token: bytes of a token's keys and values.
        longest: tokens of the longest sequence.
        utilization: engine.gpu_memory_utilization.
        device_memory_gib: memory of a card.
    """
    least = per_token * longest
    most = max(least, server_bytes(utilization, device_memory_gib) - sum(term.high for term in taken))
    formula = (
        f"at least one sequence: {longest:,} tokens x {per_token:,} bytes; vLLM takes what "
        f"engine.gpu_memory_utilization={utilization} x {device_memory_gib} GiB leaves: "
        f"{most // per_token:,} tokens"
    )
    return Term("KV cache", least, most, formula)


def server_warnings(roles: Sequence[RoleMemory], utilization: float, device_memory_gib: int) -> list[str]:
    """Return a warning if vLLM's share of a card has no room for weights and one sequence.

    `utilization`: engine.gpu_memory_utilization. Nothing is said of a role that does not fit into the card.
    """
    budget, lines = server_bytes(utilization, device_memory_gib), []
    for role in roles:
        need = sum(term.low for term in role.terms if term.name in SERVER)
        if role.role == "generate" and need > budget and role.fits(device_memory_gib * GIB) != "no":
            lines.append(
                f"memory: generate needs {shown(need, need)} for weights and one sequence, more than "
                f"engine.gpu_memory_utilization={utilization} leaves to vLLM "
                f"({shown(budget, budget)}): raise it, or layout.generate.model_parallel"
            )
    return lines


def largest(role: str, stages: Sequence[Sequence[Term]]) -> RoleMemory:
    """Return the pipeline stage whose cards need most, by the high estimate."""
    roles = [RoleMemory(role, stage, tuple(terms)) for stage, terms in enumerate(stages)]
    return max(roles, key=lambda stage: (stage.high, stage.low))


def scoring(
    model: ModelConfig, layout: RoleLayout, tokens: int, held: Iterable[int], dtype: str
) -> RoleMemory:
    """Return the memory of the reference, which is never trained.

    `tokens`: of one batch on one card, cut by context_parallel already; `held`: elements of weights on a card
    of each pipeline stage.
    """
    stages = [[weights(count, dtype), working_set(model, layout, tokens)] for count in held]
    stages[-1].append(logits(model, layout, tokens, 2))
    return largest("reference", stages)


def shown(low: int, high: int) -> str:
    """Format a size or a range of sizes."""
    scale, unit = (GIB, "GiB") if high >= GIB else (2**20, "MiB")
    left, right = f"{low / scale:.1f}", f"{high / scale:.1f}"
    return f"{right} {unit}" if left == right else f"{left} to {right} {unit}"
