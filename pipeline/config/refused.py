"""Checks of overrides before Hydra composes them: labels, and groups without a choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from pipeline.config.document import MOST_LEVELS
from pipeline.errors import Problem

LABELS = ("model.name", "dataset.name", "layout.name", "engine.name", "launcher.name")
"""Keys with the chosen option of a group; a test checks that the list is complete."""


def problems(overrides: Sequence[str], roots: Sequence[Path]) -> Iterator[Problem]:
    """Yield the problems of overrides that no configuration accepts; Hydra reports malformed ones.

    Args:
        overrides: Hydra's grammar.
        roots: directories of config groups.
    """
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException:
            continue
        except RecursionError:
            yield _too_deep(override)
            continue
        if _levels(parsed.value()) > MOST_LEVELS:  # OmegaConf fails on them with a RecursionError
            yield _too_deep(override)
            continue
        key, text = parsed.key_or_group, override.partition("=")[2].strip("'\"")
        group, _, name = key.partition(".")
        values = parsed.value()
        if key in LABELS:
            yield _label(group, text)
        elif not name and isinstance(values, dict) and "name" in values and f"{key}.name" in LABELS:
            yield _label(group, str(values["name"]))
        elif not (name or parsed.is_delete() or parsed.is_sweep_override() or _is_choice(values)):
            yield from _unnamed(group, text, roots)


def _too_deep(override: str) -> Problem:
    rule = f"has more than {MOST_LEVELS} levels"
    return Problem(override.partition("=")[0], None, rule, "use fewer levels")


def _levels(value: object) -> int:
    """Return how deeply lists and mappings are nested in a value; 0 for a scalar."""
    levels, layer = 0, [value]
    while layer := [item for item in layer if isinstance(item, (list, dict))]:
        levels += 1
        layer = [inner for item in layer for inner in (item.values() if isinstance(item, dict) else item)]
    return levels


def _label(group: str, value: str) -> Problem:
    rule = f"is the label of the chosen {group} and cannot be changed"
    return Problem(f"{group}.name", value or None, rule, f"use {group}={value or 'CHOICE'}")


def _unnamed(group: str, text: str, roots: Sequence[Path]) -> Iterator[Problem]:
    """Yield a problem if a group is set to something other than a name; other keys may have any value."""
    known = {file.stem for root in roots for file in (root / group).glob("*.y*ml") if group.isidentifier()}
    if known:
        remedy = f"known: {', '.join(sorted(known))}"
        yield Problem(group, text, "must name a choice of this group", remedy)


def _is_choice(value: object) -> bool:
    """Return True for names of choices, and for a mapping, which Hydra merges into the group."""
    names = value if isinstance(value, list) else [value]
    return isinstance(value, dict) or (bool(names) and all(isinstance(name, str) and name for name in names))
