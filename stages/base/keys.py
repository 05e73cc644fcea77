"""Dotted keys of nested values."""

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and value of all keys that are not groups; an empty group counts as a value.

    `start` is the key of `values` itself.
    """
    for name, value in values.items():
        key = f"{start}.{name}" if start else str(name)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, key)
        else:
            yield key, value


def flat(values: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Return the values of `leaves` by key without empty groups, and with lists for tuples, as in JSON."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in leaves(values, start)
        if not isinstance(value, Mapping)
    }
