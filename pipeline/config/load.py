"""The complete typed configuration: composed by Hydra, with nulls derived and all rules checked."""

import math
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from pipeline.config import inference, rules
from pipeline.config.compose import compose
from pipeline.config.composed import Composed, ComposedLayout, ComposedTrainRole
from pipeline.config.directory import complete
from pipeline.config.sections import Config
from pipeline.errors import ConfigError
from stages import engines
from stages.base.identity import CheckoutDirectory, marked
from stages.base.layout import ROLES, LayoutConfig, Role, RoleLayout
from stages.base.reader import read
from stages.fetch.config import DatasetConfig
from stages.fetch.sources import implied_source
from stages.grpo.config import TrainConfig
from stages.models.config import ModelConfig

T = TypeVar("T")


def load(overrides: Sequence[str], config_dir: Path | None = None) -> Config:
    """Compose, derive, type and check a configuration; raise ConfigError with all its problems."""
    config = _with_absolute_checkouts(unchecked(overrides, config_dir))
    if problems := rules.check(config):
        raise ConfigError(problems)
    return config


def unchecked(overrides: Sequence[str], config_dir: Path | None = None) -> Config:
    """Compose, type and derive a configuration; raise ConfigError if a value has the wrong type."""
    return derive(read(Composed, complete(compose(overrides, config_dir), overrides)))


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


def derive(composed: Composed) -> Config:
    """Return the configuration with the values that follow from others, last those of its engines."""
    model, dataset, train = composed.model, composed.dataset, composed.train
    layout = _layout(composed.layout, model)
    scale, is_validated = train.scale_advantages, train.keep_best or train.patience is not None
    validate_every = train.checkpoint_every if is_validated else 0
    config = _as(
        Config,
        composed,
        cards=layout.train.cards if composed.cards is None else composed.cards,
        layout=layout,
        evaluate=inference.on_one_card(composed.evaluate),  # until the engine has derived its settings
        model=_as(ModelConfig, model, source=model.source or implied_source(model.path, model.hub)),
        dataset=_as(
            DatasetConfig,
            dataset,
            source=dataset.source or implied_source(dataset.path, dataset.hub, dataset.files),
        ),
        train=_as(
            TrainConfig,
            train,
            scale_advantages=train.advantages == "grpo" if scale is None else scale,
            validate_every=validate_every if train.validate_every is None else train.validate_every,
        ),
    )
    for engine in engines.chosen(config)[::-1]:
        config = engine.derive(config)
    config = replace(config, evaluate=inference.derived(composed.evaluate, config))
    if config.split.roles is None:
        roles: tuple[Role, ...] = ("train",) if config.sft.enabled else ROLES
        config = replace(config, split=replace(config.split, roles=roles))
    return config


def _as(cls: type[T], composed: T, **derived: Any) -> T:
    """Return `cls` with the fields of a composed section, and those that were derived."""
    names = (field.name for field in fields(cast(Any, cls)))
    return cls(**{name: getattr(composed, name) for name in names if name not in derived}, **derived)


def _layout(composed: ComposedLayout, model: ModelConfig) -> LayoutConfig:
    """Return the layouts with their name, and with all degrees of all roles."""
    train = _role(composed.train, composed.train.data_parallel, composed.train.model_parallel, model)
    roles = {"train": train}
    for name, role in (("generate", composed.generate), ("reference", composed.reference)):
        model_parallel = role.model_parallel or _most_parallel(train, model)
        cards_per_replica = model_parallel * role.pipeline_stage * role.context_parallel
        data_parallel = role.data_parallel or max(1, train.cards // cards_per_replica)
        roles[name] = _role(role, data_parallel, model_parallel, model)
    return LayoutConfig(name=train.name, **roles)


def _role(
    composed: ComposedTrainRole, data_parallel: int, model_parallel: int, model: ModelConfig
) -> RoleLayout:
    """Return a role's layout with its degrees, and its number of micro-batches and layers per stage."""
    stages = composed.pipeline_stage
    return _as(
        RoleLayout,
        composed,
        data_parallel=data_parallel,
        model_parallel=model_parallel,
        micro_batch_num=composed.micro_batch_num or stages,
        offset=composed.offset or _spread(model.num_hidden_layers, stages),
    )


def _most_parallel(train: RoleLayout, model: ModelConfig) -> int:
    """Return the largest model_parallel up to train's that divides the cards and the numbers of heads."""
    common = math.gcd(train.cards, model.num_attention_heads, model.num_key_value_heads)
    degrees = range(1, min(train.model_parallel, common) + 1)
    return max((degree for degree in degrees if common % degree == 0), default=1)


def _spread(layers: int, stages: int) -> tuple[int, ...]:
    """Return the additional layers of each pipeline stage; empty if all have the same number.

    Inner stages get them first, because the outer two also have the embedding and the head.
    """
    remainder = layers % stages
    if remainder == 0 or layers < stages:
        return ()
    order = [*range(1, stages - 1), 0]
    return tuple(int(stage in order[:remainder]) for stage in range(stages))
