"""The configuration of a run: each section as its stages read it, and its differences from the defaults."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stages.report.artifacts import Run, mapping
from stages.report.text import shorten

MAX_ROWS, MAX_VALUE = 400, 300
SECTION_ORDER = (
    "model", "dataset", "layout", "tokenize", "sft_data", "convert", "split", "sft", "mindformers", "rollout",
    "reward", "train", "evaluate", "export",
)  # fmt: skip
"""Most informative sections first; others follow by name."""


@dataclass(frozen=True)
class Section:
    """One section as a table."""

    name: str
    columns: list[str]
    """Names of groups with equal keys (the roles of a layout); empty for a plain list of values."""
    rows: list[tuple[str, ...]]
    """Key and its value in each column; a single value belongs to all columns."""
    readers: list[str]
    """Stages that read it; empty for top-level keys such as seed."""


def sections(run: Run) -> list[Section]:
    """Return all sections, the top-level keys first."""
    config = run.config()
    top_level = {name: value for name, value in config.items() if not isinstance(value, dict)}
    ordered = [name for name in SECTION_ORDER if name in config]
    ordered += sorted(set(config) - set(top_level) - set(ordered))
    result = [Section("run", *_table(top_level), [])] if top_level else []
    for name in ordered:
        readers = [stage for stage, values in run.manifests.items() if name in mapping(values.get("config"))]
        result.append(Section(name, *_table(config[name]), readers))
    return result


def differences(run: Run, defaults: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (key, value, default) of every value that a stage read and that differs from its default."""
    if not defaults:
        return []
    read = run.config()
    usual = dict(flat({name: value for name, value in defaults.items() if name in read}))
    return [(key, text, usual.get(key, "–")) for key, text in flat(read) if text != usual.get(key)]


def flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a nested mapping as (dotted key, value) rows, at most 400."""

    def walk(part: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
        for key, value in part.items():
            if isinstance(value, dict) and value:
                yield from walk(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", plain(value)

    return [*islice(walk(values, ""), MAX_ROWS)]


def plain(value: object) -> str:
    """Return a configuration value as text of at most 300 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(text, MAX_VALUE)


def _table(values: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
    groups = {key: value for key, value in values.items() if isinstance(value, dict) and value}
    if len(groups) < 2 or len({frozenset(group) for group in groups.values()}) > 1:
        return [], [*flat(values)]
    rows: list[tuple[str, ...]] = [*flat({key: value for key, value in values.items() if key not in groups})]
    for key in next(iter(groups.values())):
        rows.append((str(key), *(plain(group[key]) for group in groups.values())))
    return list(groups), rows[:MAX_ROWS]
