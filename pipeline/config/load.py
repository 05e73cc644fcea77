"""The complete typed configuration: composed by Hydra, with nulls derived and all rules checked."""

import contextlib
import copy
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.config import rules
from pipeline.config.compose import compose
from pipeline.config.directory import complete
from pipeline.config.sections import Config
from pipeline.errors import ConfigError
from stages import engines
from stages.base.identity import CheckoutDirectory, marked
from stages.base.layout import ROLES, Role, card_count, layout_name
from stages.base.reader import as_text, read
from stages.fetch.sources import choose_source


def load(overrides: Sequence[str], config_dir: Path | None = None) -> Config:
    """Compose, derive, type and check a configuration; raise ConfigError with all its problems."""
    config = _with_absolute_checkouts(unchecked(overrides, config_dir))
    if problems := rules.check(config):
        raise ConfigError(problems)
    return config


def unchecked(overrides: Sequence[str], config_dir: Path | None = None) -> Config:
    """Compose, derive and type a configuration; raise ConfigError if a value has the wrong type."""
    return derived(read(Config, derived_values(overrides, config_dir)))


def derived(config: Config) -> Config:
    """Return the configuration with the values that follow from its engines' settings."""
    for engine in engines.chosen(config)[::-1]:
        config = engine.derive(config)
    if config.split.roles is None:
        roles: tuple[Role, ...] = ("train",) if config.sft.enabled else ROLES
        config = replace(config, split=replace(config.split, roles=roles))
    return config


def defaults() -> Config:
    """Return the configuration without overrides, and without the store and remote of the environment.

    These may be invalid, which concerns only commands that use them.
    """
    return load(["store=store", "remote=none"])


def _with_absolute_checkouts(config: Config) -> Config:
    """Return the configuration with absolute paths of checkouts: programs run in their work directories."""
    sections: dict[str, Any] = {}
    for engine in engines.chosen(config):
        settings = engine.settings_of(config)
        homes = {key: getattr(settings, key) for key in marked(type(settings), CheckoutDirectory)}
        paths = {key: os.path.abspath(home) for key, home in homes.items() if home is not None}
        sections[engine.section] = replace(settings, **paths)
    return replace(config, **sections)


def derived_values(overrides: Sequence[str], config_dir: Path | None = None) -> dict[str, Any]:
    """Return the composed configuration with derived values as plain data, without checking it.

    Raises:
        ConfigError: the configuration cannot be composed.
    """
    values = compose(overrides, config_dir)
    return derive(complete(values, overrides))


def derive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in nulls that follow from other values: sources, cards, degrees, intervals and the engine's keys.

    Values of a wrong type are ignored here: reading the typed configuration reports them.
    """
    derived = copy.deepcopy(dict(values))
    with contextlib.suppress(KeyError, TypeError, AttributeError, ZeroDivisionError):
        _derive_layout(derived)
    with contextlib.suppress(KeyError, TypeError, AttributeError, ZeroDivisionError):
        for section in (derived["model"], derived["dataset"]):
            if section["source"] is None:
                section["source"] = choose_source(section)
        train = derived["train"]
        if train["validate_every"] is None:
            is_needed = train["keep_best"] or train["patience"]
            train["validate_every"] = train["checkpoint_every"] if is_needed else 0
        engine = derived["engine"]
        for section in (engine, derived["mindformers"]):
            if "env" in section:
                section["env"] = {key: as_text(value) for key, value in section["env"].items()}
    return derived


def _derive_layout(values: dict[str, Any]) -> None:
    """Fill in the layout's name, the number of cards and the degrees of all roles."""
    layout, model = values["layout"], values["model"]
    train = layout["train"]
    cards = card_count(train)
    layout["name"] = layout_name(train)
    if values["cards"] is None:
        values["cards"] = cards
    for role in (layout["generate"], layout["reference"]):
        _derive_role(role, train["model_parallel"], cards, model)
    for role in (train, layout["generate"], layout["reference"]):
        if role["micro_batch_num"] is None:
            role["micro_batch_num"] = role["pipeline_stage"]
        if not role["offset"]:
            role["offset"] = _spread(model["num_hidden_layers"], role["pipeline_stage"])


def _derive_role(role: dict[str, Any], model_parallel: int, cards: int, model: Mapping[str, Any]) -> None:
    """Fill in null degrees: the largest possible model_parallel up to train's, then data_parallel."""
    if role["model_parallel"] is None:
        common = math.gcd(cards, model["num_attention_heads"], model["num_key_value_heads"])
        degrees = range(1, min(model_parallel, common) + 1)
        role["model_parallel"] = max((degree for degree in degrees if common % degree == 0), default=1)
    if role["data_parallel"] is None:
        cards_per_replica = role["model_parallel"] * role["pipeline_stage"] * role["context_parallel"]
        role["data_parallel"] = max(1, cards // cards_per_replica)


def _spread(layers: int, stages: int) -> list[int]:
    """Return the additional layers of each pipeline stage; empty if all have the same number.

    Inner stages get them first, because the outer two also have the embedding and the head.
    """
    remainder = layers % stages
    if remainder == 0 or layers < stages:
        return []
    order = [*range(1, stages - 1), 0]
    return [int(stage in order[:remainder]) for stage in range(stages)]
