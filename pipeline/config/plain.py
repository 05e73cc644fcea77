"""Plain data: nested mappings, lists and tuples of immutable values."""

import dataclasses
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Copy `value` with a dict for each dataclass, several times as fast as `copy.deepcopy` and `asdict`."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings into one with dotted keys."""
    if isinstance(values, Mapping):
        return {
            key: leaf
            for name, value in values.items()
            for key, leaf in flat(value, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    return {prefix: list(values) if isinstance(values, tuple) else values}
