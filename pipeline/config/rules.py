"""Rules between fields: what single types and bounds cannot say. Each names its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline import engines
from pipeline.errors import Problem
from stages.fetch.config import check_dataset, check_model
from stages.fetch.sources import check_fetch
from stages.grpo.config import check_evaluate, check_train
from stages.layout import ROLES, Role, RoleLayout
from stages.model_config import check_ids
from stages.models.families import check_family, family_of
from stages.rewards.config import check_reward
from stages.strategy import layouts
from stages.tokenize.config import check_tokenize

if TYPE_CHECKING:
    from pipeline.config.load import Config

MOST_CARDS = 64
"""Of a dense model; one with experts may fit on no fewer than hundreds."""
HEADS_RULE = "must divide {name}={count} (mindformers llama_transformer.py:187)"


def check(config: Config) -> list[Problem]:
    """Every rule that `config` breaks; empty when it can run."""
    per_node = config.launcher.cards_per_node
    family = list(check_family(config.model, config.engine.name))
    return [
        *family,
        *_model(config),
        *(problem for role in ROLES for problem in _role(config, role)),
        *(
            problem
            for engine in engines.chosen(config)
            if not family or engine.name == engines.SUPERVISED
            for problem in engine.problems(config, per_node)
        ),
        *_lengths(config),
        *_training(config),
        *_sources(config),
    ]


def degrees(role: Mapping[str, Any]) -> int:
    """Cards that a role's plain values occupy."""
    product: int = (
        role["data_parallel"] * role["model_parallel"] * role["pipeline_stage"] * role["context_parallel"]
    )
    return product


def layout_name(role: Mapping[str, Any]) -> str:
    """The name that follows from a role's plain values."""
    name = f"dp{role['data_parallel']}_mp{role['model_parallel']}_pp{role['pipeline_stage']}"
    name += f"_cp{role['context_parallel']}" if role["context_parallel"] != 1 else ""
    return name + (f"_ep{role['expert_parallel']}" if role["expert_parallel"] != 1 else "")


def divisors(count: int) -> str:
    """What may stand where something must divide `count`, told."""
    return " or ".join(str(one) for one in range(1, count + 1) if count % one == 0)


def _model(config: Config) -> Iterator[Problem]:
    model = config.model
    if config.cards > MOST_CARDS and family_of(model).num_experts is None:
        yield Problem("cards", config.cards, f"must be at most {MOST_CARDS}", f"use at most {MOST_CARDS}")
    if model.hidden_size % model.num_attention_heads:
        yield Problem(
            "model.hidden_size",
            model.hidden_size,
            f"must be a multiple of num_attention_heads={model.num_attention_heads}",
            f"use {-(-model.hidden_size // model.num_attention_heads) * model.num_attention_heads}",
        )
    elif model.head_dim % 2:
        yield Problem(
            "model.hidden_size",
            model.hidden_size,
            f"head size {model.head_dim} must be even (rotary pairs)",
            f"use {(model.head_dim + 1) * model.num_attention_heads}",
        )
    if model.num_attention_heads % model.num_key_value_heads:
        yield Problem(
            "model.num_key_value_heads",
            model.num_key_value_heads,
            f"must divide num_attention_heads={model.num_attention_heads} (grouped-query attention)",
            f"use {divisors(model.num_attention_heads)}",
        )


def _role(config: Config, role: Role) -> Iterator[Problem]:
    layout, model = config.layout.role(role), config.model
    path = f"layout.{role}"
    if layout.cards != config.cards:
        yield Problem(
            path,
            layout.name,
            f"occupies {layout.cards} cards (dp*mp*pp*cp), must be cards={config.cards} "
            "(ours: the roles take turns on the same cards)",
            f"choose another layout, or cards={layout.cards}"
            if role == "train"
            else "leave its degrees null",
        )
    heads = list(_heads(path, layout, config))
    yield from heads
    if layout.pipeline_stage > model.num_hidden_layers:
        yield Problem(
            f"{path}.pipeline_stage",
            layout.pipeline_stage,
            f"at most num_hidden_layers={model.num_hidden_layers}",
            f"use at most {model.num_hidden_layers}, and raise data_parallel instead",
        )
    elif not heads:
        yield from layouts.problems(model, layout, path)


def _heads(path: str, layout: RoleLayout, config: Config) -> Iterator[Problem]:
    for name in ("num_attention_heads", "num_key_value_heads"):
        count = getattr(config.model, name)
        if count % layout.model_parallel:
            yield Problem(
                f"{path}.model_parallel",
                layout.model_parallel,
                HEADS_RULE.format(name=name, count=count),
                f"use {divisors(count)}",
            )


def _lengths(config: Config) -> Iterator[Problem]:
    longest = config.tokenize.max_prompt_length + config.rollout.max_tokens
    if longest > config.model.max_position_embeddings:
        yield Problem(
            "rollout.max_tokens",
            config.rollout.max_tokens,
            f"tokenize.max_prompt_length + rollout.max_tokens = {longest} must be at most "
            f"model.max_position_embeddings={config.model.max_position_embeddings}",
            _shorter(config),
        )


def _shorter(config: Config) -> str:
    left = config.model.max_position_embeddings - config.tokenize.max_prompt_length
    return f"use at most {left}" if left > 0 else "lower tokenize.max_prompt_length"


def _training(config: Config) -> Iterator[Problem]:
    yield from check_train(config.train, config.rollout)
    yield from check_reward(config.reward)
    yield from check_evaluate(config.evaluate)
    yield from check_tokenize(config.tokenize)
    if config.tokenize.kind != "grpo":
        remedy = "make files for mindformers with `grpoflow tokenize`"
        yield Problem("tokenize.kind", config.tokenize.kind, "must be grpo in a run", remedy)


def _sources(config: Config) -> Iterator[Problem]:
    yield from check_model(config.model)
    yield from check_ids(config.model)
    yield from check_dataset(config.dataset)
    yield from check_fetch(config.fetch)
