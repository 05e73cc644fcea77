"""Nested values of rendered files as one level."""

from __future__ import annotations

from typing import Any


def flat(values: Any, prefix: str = "", lists: bool = False) -> dict[str, Any]:
    """Leaf values by dotted key; with `lists`, an entry's place in its list is a key, too."""
    if lists and isinstance(values, list):
        values = {str(number): value for number, value in enumerate(values)}
    if not isinstance(values, dict):
        return {prefix: values}
    return {
        key: leaf
        for name, below in values.items()
        for key, leaf in flat(below, f"{prefix}.{name}" if prefix else name, lists).items()
    }
