"""Memory of one process of the local trainer; all its roles stay in memory together."""

from __future__ import annotations

from stages.base.layout import LayoutConfig, RoleLayout
from stages.grpo.config import (
    RolloutConfig,
    TrainConfig,
    early_slots,
    parts_for,
    shard_key,
    shares_rows,
    smaller_batches,
)
from stages.models import memory
from stages.models.config import ModelConfig
from stages.models.memory import GIB, RoleMemory, Term

_ITEM = 4  # it computes in float32 whatever the weights are stored in
_HIDDEN, _QKV, _INTERMEDIATE, _SCORES, _VOCABULARY = 24, 3, 3, 1, 2
"""Arrays of each width that a token has at the peak, forward and backward.

They count operators' outputs that MindSpore's CPU graphs keep, fitted to the measured peaks of eight shapes
(least squares of relative errors, whole numbers; mindspore 2.7.0; tests/benchmarks/README.md). The fit gave 2
arrays of scores and 4 of the feed-forward; attention and `Gated` keep one less each since, and the peak fell
by at least as much at the shapes that were measured again. If the model's graph changes, measure again. They
do not apply to Ascend."""
_ERROR = 0.15
_PROCESS = Term("process", GIB // 4, GIB, "Python, MindSpore and its compiled graphs; estimate")


def estimate(
    model: ModelConfig, layout: LayoutConfig, train: TrainConfig, rollout: RolloutConfig, prompt_tokens: int
) -> tuple[RoleMemory, ...]:
    """Estimate train, generate and, if there is one, reference; a process needs their sum.

    `prompt_tokens`: the longest prompt.

    Raises:
        ConfigError: a layout does not fit the model.
    """
    roles = [_train(model, layout.train, train, rollout, prompt_tokens)]
    roles.append(_generate(model, layout, train, rollout, prompt_tokens))
    if train.beta > 0:
        held = memory.elements(model, layout.reference, "layout.reference")[0].held
        roles.append(RoleMemory("reference", 0, (memory.weights(held, "float32"),)))
    return tuple(roles)


def _train(
    model: ModelConfig, layout: RoleLayout, train: TrainConfig, rollout: RolloutConfig, prompt_tokens: int
) -> RoleMemory:
    held = memory.elements(model, layout, "layout.train")[0].held
    prompts = -(-train.prompts_per_step // (layout.data_parallel * layout.micro_batch_num))
    G, T = rollout.num_generations, rollout.max_tokens
    rows = prompts * G
    if shares_rows(prompt_tokens, G, T):
        prompts = rows = parts_for(prompts, G)
    answers, questions = rows * T, prompts * prompt_tokens
    heads, mp = model.num_attention_heads / layout.model_parallel, layout.model_parallel
    projected = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_size
    per_token = (
        _HIDDEN * model.hidden_size + (_QKV * projected + _INTERMEDIATE * model.intermediate_size) / mp
    )
    scores = heads * (answers * (prompt_tokens + rollout.max_tokens) + questions * prompt_tokens)
    layers = model.num_hidden_layers
    activations = _ITEM * layers * ((answers + questions) * per_token + _SCORES * scores)
    formula = (
        f"{answers:,} completion and {questions:,} prompt tokens x {layers} layers x ({_HIDDEN} hidden + "
        f"({_QKV} queries, keys and values + {_INTERMEDIATE} intermediate) / {mp} + {_SCORES} scores of "
        f"{heads:g} heads x keys) x {_ITEM}"
    )
    logits = memory.logits(model, layout, answers, 1).low * _VOCABULARY
    return RoleMemory(
        "train",
        0,
        (
            _PROCESS,
            memory.weights(held, "float32"),
            memory.exact("gradients", held * _ITEM, f"{held:,} elements x {_ITEM} (float32)"),
            memory.exact("optimizer", 2 * held * _ITEM, f"2 moments x {held:,} elements x {_ITEM}"),
            _update(model, layout, train, held),
            _measured("activations", activations, formula),
            _measured(
                "logits", logits, f"{answers:,} completion tokens x vocabulary x {_VOCABULARY} x {_ITEM}"
            ),
        ),
    )


def _update(model: ModelConfig, layout: RoleLayout, train: TrainConfig, held: int) -> Term:
    """Return the temporary memory next to the gradients; the optimizer works in place."""
    largest = max(model.vocab_size, model.intermediate_size) * model.hidden_size
    clipped = min(held, largest) if train.max_grad_norm is not None else 0
    parts = list[str]()
    if layout.micro_batch_num > 1:
        parts.append("the next micro-batch's")
    if layout.data_parallel > 1:
        parts += ["joined", "summed over the workers"]
    copies = ", ".join(parts) or "none"
    formula = (
        f"gradients again, as far as they stay: {copies} x {held:,} elements x {_ITEM}; "
        f"the largest one clipped: {clipped:,} elements x {_ITEM}; estimate"
    )
    return Term("update", 0, (len(parts) * held + clipped) * _ITEM, formula)


def _measured(name: str, size: float, formula: str) -> Term:
    """Return an estimated term that was compared with the trainer's peak memory on CPUs."""
    note = f"; estimate, within {_ERROR:.0%} of what was measured on CPU graphs"
    return Term(name, int(size * (1 - _ERROR)), int(size * (1 + _ERROR)), formula + note)


def _generate(
    model: ModelConfig, layouts: LayoutConfig, train: TrainConfig, rollout: RolloutConfig, prompt_tokens: int
) -> RoleMemory:
    layout = layouts.generate
    held = memory.elements(model, layout, "layout.generate")[0].held
    weights = memory.weights(held, "float32")
    if shard_key(layouts.train) == shard_key(layout):
        weights = memory.exact("weights", 0, "training's, which are cut alike")
    per_token, T = memory.cache_bytes_per_token(model, layout, "float32"), rollout.max_tokens

    def cache(name: str, content: str, rows: int, slots: int) -> Term:
        size = rows * (prompt_tokens + slots) * per_token
        formula = (
            f"{rows:,} {content} x ({prompt_tokens:,} prompt + {slots:,} completion tokens) x "
            f"{per_token:,} bytes"
        )
        if rollout.repetition_penalty != 1:
            size += rows * model.vocab_size * _ITEM
            formula += f" + {rows:,} x {model.vocab_size:,} tokens seen (repetition_penalty) x {_ITEM} bytes"
        return memory.exact(name, size, formula)

    def caches(name: str, content: str, rows: int) -> list[Term]:
        first = cache(name, content, rows, early_slots(T))
        every = cache(name, content, rows, T)
        return [
            Term(f"first {name}", 0, first.high, first.formula),
            Term(name, first.low, every.high, f"{every.formula}, fewer if completions end early"),
        ]

    rows = -(-train.prompts_per_step // layout.data_parallel) * rollout.num_generations
    terms = [weights, *caches("KV cache", "completions", rows)]
    fewer = sum(smaller_batches(rows))
    if train.validate_every:
        checked = -(-train.validation_prompts // layout.data_parallel)
        terms += caches("checks' cache", "held-out answers", checked)
        fewer += sum(smaller_batches(checked))
    if fewer:
        copies = cache("smaller KV caches", "completions that go on as others end", fewer, T)
        terms.append(Term(copies.name, 0, copies.high, copies.formula))
    return RoleMemory("generate", 0, tuple(terms))
