"""Keys that must have one value in all points of a sweep, because they change no artifact.

Points share artifacts, and each artifact is built once, so only one of two values of such a key takes effect.
"""

from collections.abc import Iterable

from pipeline.config.compose import flat
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from pipeline.plan.graph import Plan
from stages.base.identity import identity

RULE = "must have one value in all points of a sweep: it changes no artifact, so only one value would count"


def check_shared_keys(plans: Iterable[Plan]) -> None:
    """Compare each plan's configuration with the first one that has the same artifacts.

    Raises:
        ConfigError: a key outside the fingerprints has different values.
    """
    configs: dict[tuple[str, ...], Config] = {}
    keys: set[str] = set()
    for plan in plans:
        first = configs.setdefault(tuple(str(spec.key) for spec in plan.requested), plan.config)
        if first != plan.config:
            before, after = first.plain(), plan.config.plain()
            identities = {**flat(identity(Config, before)), **flat(identity(Config, after))}
            later = flat(after)
            differing = {key for key, value in flat(before).items() if later.get(key) != value}
            keys |= differing - identities.keys()
    if keys:
        raise ConfigError([Problem(key, None, RULE, "run one sweep for each value") for key in sorted(keys)])
