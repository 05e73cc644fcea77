"""Keys that must have one value in all points of a sweep, because they change no artifact.

Points share artifacts, and each artifact is built once, so only one of two values of such a key takes effect.
"""

import re
from collections.abc import Sequence

from pipeline.config.plain import flat
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from pipeline.plan.graph import Plan
from stages.base.identity import NotInIdentity, identity, marked

SECOND_ADDRESS = re.compile(r",\s*([a-z][a-z0-9+.-]*://|null\s*$|null\s*,)")
RULE = "must have one value in all points of a sweep: it changes no artifact, so only one value would count"
REMEDY = "run one sweep for each value"


def check_overrides(overrides: Sequence[str]) -> None:
    """Check that no override gives several addresses (or null) for the remote; Hydra has no lists of URLs.

    Raises:
        ConfigError: an unquoted value contains several addresses.
    """
    for override in overrides:
        key, _, value = override.partition("=")
        is_address = key.lstrip("+") in ("remote", "remote.url", "remote.endpoint")
        if is_address and SECOND_ADDRESS.search(value) and not value.startswith(("'", '"')):
            raise ConfigError([Problem(key, None, RULE, REMEDY)])


class SharedKeys:
    """Values of these keys in all points that were checked so far."""

    def __init__(self) -> None:
        self._first: Config | None = None
        self._by_artifacts: dict[tuple[str, ...], Config] = {}

    def check(self, plans: Sequence[Plan]) -> None:
        """Compare each plan with the first one, and with the first one that has the same artifacts.

        Raises:
            ConfigError: a key has different values.
        """
        for plan in plans:
            self._first = self._first or plan.config
            artifacts = tuple(str(spec.key) for spec in plan.requested)
            same = self._by_artifacts.setdefault(artifacts, plan.config)
            keys = {*_differing_sections(self._first, plan.config), *_differing_keys(same, plan.config)}
            if keys:
                raise ConfigError([Problem(key, None, RULE, REMEDY) for key in sorted(keys)])


def _differing_sections(first: Config, second: Config) -> list[str]:
    """Return the keys that differ in sections outside every fingerprint: store, launcher, remote, fetch."""
    if all(getattr(first, name) == getattr(second, name) for name in marked(Config, NotInIdentity)):
        return []
    before, after = first.plain(), second.plain()
    return [
        key
        for name in marked(Config, NotInIdentity)
        for key, value in flat(before[name], name).items()
        if flat(after[name], name).get(key) != value
    ]


def _differing_keys(first: Config, second: Config) -> list[str]:
    """Return the keys that differ and are in the identity of neither configuration."""
    if first is second or first == second:
        return []
    before, after = first.plain(), second.plain()
    identities = {**flat(identity(Config, before)), **flat(identity(Config, after))}
    later = flat(after)
    return [key for key, value in flat(before).items() if key not in identities and later.get(key) != value]
