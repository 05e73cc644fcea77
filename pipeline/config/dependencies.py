"""What a composition depends on besides its overrides, recorded while Hydra composes and resolves it.

These are config files at any depth, places where a file of that name would take precedence, and environment
variables. A composition that called a resolver with changing values, such as `${now:%Y}`, is never cached.
Hydra 1.3 and OmegaConf 2.3 have no public way to observe this, so two of their methods are replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.config.resolvers import RESOLVERS

STABLE_RESOLVERS = frozenset(RESOLVERS) | {
    "oc.create", "oc.decode", "oc.deprecated", "oc.dict.keys", "oc.dict.values", "oc.select", "oc.env",
    "python_version",
}  # fmt: skip
"""Resolvers whose values follow from their arguments and from what is recorded."""
STABLE_SOURCES = ("grpoflow", "structured", "pkg")
"""Schemes of config sources whose content is code: layouts by name, Hydra's own files."""


@dataclass
class Dependencies:
    """State of everything that a composition has read."""

    paths: dict[str, str | None] = field(default_factory=dict)
    """Path -> digest of the file, "directory", or None if nothing is there."""
    variables: dict[str, str | None] = field(default_factory=dict)
    """Environment variable -> digest of its value (which may be secret), or None if it is not set."""
    changing: set[str] = field(default_factory=set)
    """Resolvers and config sources whose values may change at any time."""

    def hold(self) -> bool:
        """Return True if everything that was read is unchanged."""
        return (
            not self.changing
            and all(_state(path) == state for path, state in self.paths.items())
            and all(_variable(name) == state for name, state in self.variables.items())
        )

    def add(self, other: Dependencies) -> None:
        """Add the dependencies of a part."""
        self.paths |= other.paths
        self.variables |= other.variables
        self.changing |= other.changing


@contextlib.contextmanager
def recorded() -> Iterator[Dependencies]:
    """Record what Hydra and OmegaConf read in the code inside."""
    from hydra._internal.config_repository import ConfigRepository
    from omegaconf import OmegaConf
    from omegaconf.resolvers import oc

    read = Dependencies()
    find, get_resolver = ConfigRepository._find_object_source, OmegaConf._get_resolver

    def recorded_find(repository: ConfigRepository, config_path: str, object_type: Any) -> Any:
        for source in repository.get_sources():
            if source.scheme() == "file":
                is_config = object_type is not None and object_type.name == "CONFIG"
                name = source._normalize_file_name(config_path) if is_config else config_path
                path = os.path.join(source.path, name)
                read.paths.setdefault(path, _state(path))  # before it is read: a later edit then counts
            elif source.scheme() not in STABLE_SOURCES:
                read.changing.add(f"{source.scheme()}://")
        return find(repository, config_path, object_type)

    def recorded_resolver(name: str) -> Any:
        resolver = get_resolver(name)
        if resolver is None or name in STABLE_RESOLVERS:
            return resolver

        def resolve(root: Any, parent: Any, node: Any, *arguments: Any) -> Any:
            if not str(node._get_full_key(None)).startswith(
                "hydra."
            ):  # Hydra's own directories have the time
                read.changing.add(name)
            return resolver(root, parent, node, *arguments)

        return resolve

    def recorded_env(key: str, *default: Any) -> str | None:
        read.variables.setdefault(str(key), _variable(str(key)))
        return oc.env(key, *default)

    OmegaConf.register_new_resolver("oc.env", recorded_env, replace=True)
    ConfigRepository._find_object_source = recorded_find  # type: ignore[method-assign, assignment]
    OmegaConf._get_resolver = staticmethod(recorded_resolver)  # type: ignore[method-assign]
    try:
        yield read
    finally:
        ConfigRepository._find_object_source = find  # type: ignore[method-assign]
        OmegaConf._get_resolver = staticmethod(get_resolver)  # type: ignore[method-assign]
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def _state(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except IsADirectoryError:
        return "directory"
    except OSError:
        return None


def _variable(name: str) -> str | None:
    value = os.environ.get(name)
    return None if value is None else hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
