"""What tests of rendered files share: Qwen2.5's sizes, layouts' names, and nested values as one level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZES = {  # layers, query heads, key-value heads, tied: config.json of Qwen/Qwen2.5-*
    "0_5b": (24, 14, 2, True), "1_5b": (28, 12, 2, True), "3b": (36, 16, 2, True), "7b": (28, 28, 4, False),
    "14b": (48, 40, 8, False), "32b": (64, 40, 8, False), "72b": (80, 64, 8, False),
}  # fmt: skip
POWERS = (1, 2, 4, 8, 16, 32, 64)


def layout(run: Mapping[str, Any]) -> str:
    """The override of a layout, by its degrees."""
    name = f"dp{run['dp']}_mp{run['mp']}_pp{run['pp']}" + (f"_cp{run['cp']}" if run["cp"] > 1 else "")
    return f"layout={name}"


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
