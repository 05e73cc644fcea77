"""The whole configuration, typed: Hydra's plain result, nulls derived, every rule checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from launch.config import LauncherConfig
from pipeline import engines
from pipeline.config import rules
from pipeline.config.compose import Composer
from pipeline.config.compose_cache import compose_cached
from pipeline.config.directory import alone
from pipeline.config.give_way import give_way
from pipeline.config.kept import Kept
from pipeline.config.plain import plain
from pipeline.config.remote import RemoteConfig
from pipeline.errors import ConfigError
from stages.base.bounds import Positive
from stages.base.identity import NotInIdentity, identity
from stages.base.reader import as_text, read
from stages.fetch.sources import choose_source
from stages.sections import Sections


@dataclass(frozen=True)
class Config(Sections):
    """What stages read, and where and how the run computes."""

    store: Annotated[str, NotInIdentity()]
    """Directory of the artifacts; default ./store or $GRPOFLOW_STORE."""
    cards: Positive
    """Workers of the grpo stage; null takes what layout.train occupies."""
    launcher: Annotated[LauncherConfig, NotInIdentity()]
    remote: Annotated[RemoteConfig, NotInIdentity()]

    def plain(self) -> dict[str, Any]:
        """Plain data with normalised types: what is fingerprinted and handed to stages."""
        return dict(plain(self))


def load(
    overrides: Sequence[str], config_dir: Path | None = None, composer: Composer | None = None
) -> Config:
    """Compose, derive, type and check a configuration; as `load_noted`, without its notes."""
    return load_noted(overrides, config_dir, composer)[0]


def load_noted(
    overrides: Sequence[str], config_dir: Path | None = None, composer: Composer | None = None
) -> tuple[Config, tuple[str, ...]]:
    """Compose, derive, type and check a configuration.

    Args:
        overrides: Hydra's.
        config_dir: the user's own config groups.
        composer: of many points; None: composed by the cache on disk.

    Returns:
        The configuration, and which defaults gave way to what was typed.

    Raises:
        ConfigError: with every problem that can be told apart, in one go.
    """
    values = composer.compose(overrides) if composer else compose_cached(overrides, config_dir)
    values, notes = give_way(alone(values, overrides), overrides)
    kept = composer.kept if composer else Kept()
    config = read(Config, derive(values), made=kept.sections)
    problems = rules.check(config, kept)
    if problems:
        raise ConfigError(problems)
    return config, notes


def without_places(overrides: Sequence[str], engine: str) -> list[str]:
    """Those that say what a model is: none that says where things lie, what a machine has, or who is told.

    Args:
        overrides: as they were typed.
        engine: the run's, whose keys section engine has; where nobody knows it, none of them is told.
    """

    def counts(override: str) -> bool:
        *sections, name = override.lstrip("+~").partition("=")[0].split(".")
        section: dict[str, Any] = {name: "typed"}
        for step in reversed(sections):
            section = {step: section}
        if sections[:1] == ["engine"]:
            if not engine:
                return False
            section["engine"]["name"] = engine
        found: Any = identity(Config, section)
        for step in (*sections, name):
            if not isinstance(found, Mapping) or step not in found:
                return False
            found = found[step]
        return True

    return [override for override in overrides if counts(override)]


def derive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what follows from other values: sources, cards, degrees of generate and reference, split.roles.

    Values of a wrong type are left alone: reading the typed configuration reports them.
    """
    derived = dict(plain(values))
    try:
        for section in (derived["model"], derived["dataset"]):
            if section["source"] is None:
                section["source"] = choose_source(section)
        layout, model = derived["layout"], derived["model"]
        train = layout["train"]
        cards = rules.degrees(train)
        layout["name"] = rules.layout_name(train)
        derived["cards"] = cards if derived["cards"] is None else derived["cards"]
        for role in (layout["generate"], layout["reference"]):
            _derive_role(role, train["model_parallel"], cards, model)
        for role in (train, layout["generate"], layout["reference"]):
            if role["micro_batch_num"] is None:
                role["micro_batch_num"] = role["pipeline_stage"]
            if not role["offset"]:
                role["offset"] = _spread(model["num_hidden_layers"], role["pipeline_stage"])
        if derived["engine"]["sft"] == engines.SUPERVISED:
            engines.of(engines.SUPERVISED).derive(derived)
        if derived["split"]["roles"] is None:
            sft = derived["sft"]["enabled"]
            derived["split"]["roles"] = ["train"] if sft else ["train", "generate", "reference"]
        engine = derived["engine"]
        for section in (engine, derived["mindformers"]):
            if "env" in section:
                section["env"] = {key: as_text(value) for key, value in section["env"].items()}
        engines.of(engine["name"]).derive(derived)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError):
        return derived
    return derived


def _derive_role(role: dict[str, Any], model_parallel: int, cards: int, model: Mapping[str, Any]) -> None:
    """pipeline_stage 1, train's model_parallel where the heads allow it, data_parallel for the rest."""
    heads = (model["num_attention_heads"], model["num_key_value_heads"])
    if role["model_parallel"] is None:
        fitting = (
            degree
            for degree in range(model_parallel, 0, -1)
            if cards % degree == 0 and all(count % degree == 0 for count in heads)
        )
        role["model_parallel"] = next(fitting)
    if role["data_parallel"] is None:
        others = role["model_parallel"] * role["pipeline_stage"] * role["context_parallel"]
        role["data_parallel"] = max(1, cards // others)


def _spread(layers: int, stages: int) -> list[int]:
    """Where layers beyond equal shares go; empty when there are none.

    One each to inner stages first, for the outer two hold embedding and head besides.
    """
    rest = layers % stages
    if rest == 0 or layers < stages:
        return []
    order = [*range(1, stages - 1), 0]
    return [int(stage in order[:rest]) for stage in range(stages)]
