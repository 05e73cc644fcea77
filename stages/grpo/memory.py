"""What a run of the local trainer needs in each of its processes; all its roles stay in memory together."""

from __future__ import annotations

from stages import memory
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.layout import LayoutConfig, RoleLayout
from stages.memory import GIB, RoleMemory, Term
from stages.model_config import ModelConfig

_ITEM = 4  # it computes in float32 whatever the weights are stored in
_PROCESS = Term("process", GIB // 4, GIB, "Python, MindSpore and its compiled graphs; estimate")


def estimate(
    model: ModelConfig, layout: LayoutConfig, train: TrainConfig, rollout: RolloutConfig, prompt_tokens: int
) -> tuple[RoleMemory, ...]:
    """train, generate and, where there is one, reference; a process needs their sum.

    Args:
        model: the model.
        layout: all roles; data_parallel and model_parallel only.
        train: prompts per step, beta.
        rollout: completions per prompt and their length.
        prompt_tokens: the longest prompt.

    Raises:
        ConfigError: a layout does not fit the model.
    """
    roles = [_train(model, layout.train, train, rollout, prompt_tokens)]
    roles.append(_generate(model, layout.generate, train, rollout, prompt_tokens))
    if train.beta > 0:
        held = memory.elements(model, layout.reference, "layout.reference")[0].held
        roles.append(RoleMemory("reference", 0, (memory.weights(held, "float32"),)))
    return tuple(roles)


def _train(
    model: ModelConfig, layout: RoleLayout, train: TrainConfig, rollout: RolloutConfig, prompt_tokens: int
) -> RoleMemory:
    held = memory.elements(model, layout, "layout.train")[0].held
    prompts = -(-train.prompts_per_step // (layout.data_parallel * layout.micro_batch_num))
    completions = prompts * rollout.num_generations
    answers, questions = completions * rollout.max_tokens, prompts * prompt_tokens
    per_token, text = memory.token_elements(model, layout)
    heads = model.num_attention_heads / layout.model_parallel
    answer_scores = answers * (prompt_tokens + rollout.max_tokens) * heads
    question_scores = questions * prompt_tokens * heads
    layers = model.num_hidden_layers
    low = _ITEM * layers * (answers * per_token + answer_scores)
    high = 2 * _ITEM * layers * ((answers + questions) * per_token + answer_scores + question_scores)
    return RoleMemory(
        "train",
        0,
        (
            _PROCESS,
            memory.weights(held, "float32"),
            memory.exact("gradients", held * _ITEM, f"{held:,} elements x {_ITEM} (float32)"),
            memory.exact("optimizer", 2 * held * _ITEM, f"2 moments x {held:,} elements x {_ITEM}"),
            Term(
                "update",
                2 * held * _ITEM,
                6 * held * _ITEM,
                f"decay and share of each element, and 0 to 4 copies while it is computed: 2 to 6 x {held:,}"
                f" elements x {_ITEM}; estimate",
            ),
            Term(
                "activations",
                int(low),
                int(high),
                f"{answers:,} completion tokens (at most with {questions:,} of prompts, and twice) x {layers}"
                f" layers x ({text} + scores {heads:g} heads x keys) x {_ITEM}; estimate",
            ),
            memory.logits(model, layout, answers, 3),
        ),
    )


def _generate(
    model: ModelConfig, layout: RoleLayout, train: TrainConfig, rollout: RolloutConfig, prompt_tokens: int
) -> RoleMemory:
    held = memory.elements(model, layout, "layout.generate")[0].held
    prompts = -(-train.prompts_per_step // layout.data_parallel)
    answers = prompts * rollout.num_generations * rollout.max_tokens
    per_token = memory.cache_bytes_per_token(model, layout, "float32")
    cache = Term(
        "KV cache",
        answers * per_token,
        (2 * (answers + prompts * prompt_tokens) + prompts * rollout.num_generations * prompt_tokens)
        * per_token,
        f"{answers:,} completion tokens (at most with {prompts * prompt_tokens:,} of prompts, twice, and "
        f"those once per completion) x {per_token:,} bytes; estimate",
    )
    return RoleMemory("generate", 0, (memory.weights(held, "float32"), cache))
