"""Expansion of a sweep's command line into the override lists of its points, in Hydra's grammar."""

import itertools
from collections.abc import Sequence

from pipeline.config.compose import parse
from pipeline.config.remote import as_override
from pipeline.errors import ConfigError, Problem


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Return the points: every combination of the values of keys with several values.

    Raises:
        ConfigError: an override is malformed, has no list of values, or is a setting of Hydra.
    """
    choices: dict[str, list[str]] = {}
    for override in map(parse, map(as_override, overrides)):
        key = override.get_key_element()
        if key.lstrip("+~").startswith("hydra"):
            rule = "is a setting of Hydra's own sweeps"
            raise ConfigError([Problem(key, None, rule, "for a search call grpoflow.run from Optuna")])
        if not override.is_sweep_override():
            choices[key] = [str(override.input_line)]
        elif override.is_discrete_sweep():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            rule = "is not a list of values"
            raise ConfigError([Problem(key, None, rule, f"{key}=A,B")])
    return [list(point) for point in itertools.product(*choices.values())]
