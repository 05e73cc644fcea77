"""The data card: tokenize's result.json as tables, small histograms and decoded samples."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.report.artifacts import mapping
from stages.report.tables import MAX_ROWS, leaves, plain
from stages.report.text import figure, number, percent, shorten, words

MAX_FILES, MAX_BARS = 12, 40


@dataclass(frozen=True)
class Length:
    """Token counts of one column of one file."""

    file: str
    column: str
    figures: tuple[str, ...]
    """Mean and the percentiles named in PERCENTILES, ready to show."""
    bars: tuple[float, ...]
    """Heights of the histogram, 0 to 1; empty where there is none."""


PERCENTILES = ("0", "50", "95", "100")


@dataclass(frozen=True)
class DataCard:
    """Results of tokenize in the form that the page needs."""

    files: tuple[str, ...]
    counts: tuple[tuple[str, ...], ...]
    """(what, value per file) rows."""
    lengths: tuple[Length, ...]
    samples: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """(file, (field, text) pairs) of the first rows."""
    rest: tuple[tuple[str, str], ...]
    """Everything that has no table of its own."""

    def __bool__(self) -> bool:
        return bool(self.files or self.rest)


def data_card(result: Mapping[str, Any], text_limit: int) -> DataCard:
    """Arrange tokenize's result.json; keys of another shape than expected end up in `rest`."""
    files = {str(name): card for name, card in mapping(result.get("files")).items() if isinstance(card, dict)}
    files = dict(list(files.items())[:MAX_FILES])
    counts: dict[str, dict[str, str]] = {}
    lengths, samples = [], []
    for file, card in files.items():
        plainly = {key: value for key, value in card.items() if key not in ("lengths", "samples")}
        for what, shown in _rows(plainly):
            counts.setdefault(what, {})[file] = shown
        lengths += [_length(file, column, mapping(v)) for column, v in mapping(card.get("lengths")).items()]
        rows = card.get("samples")
        for row in rows[:1] if isinstance(rows, list) else []:
            fields = list(mapping(row).items())[:6]
            texts = tuple((words(str(key)), shorten(str(value), text_limit)) for key, value in fields)
            samples.append((file, texts))
    table = [(what, *(values.get(file, "–") for file in files)) for what, values in counts.items()]
    remaining = _rows({key: value for key, value in result.items() if key != "files" or not files})
    return DataCard(
        tuple(files), tuple(table[:MAX_ROWS]), tuple(lengths[:40]), tuple(samples), tuple(remaining)
    )


def _length(file: str, column: str, values: Mapping[str, Any]) -> Length:
    percentiles = mapping(values.get("percentiles"))
    shown = (figure(values.get("mean")), *(figure(percentiles.get(name)) for name in PERCENTILES))
    heights = mapping(values.get("histogram")).get("rows")
    bars = [max(0.0, number(height) or 0.0) for height in heights] if isinstance(heights, list) else []
    top = max(bars, default=0.0) or 1.0
    return Length(file, str(column), shown, tuple(bar / top for bar in bars[:MAX_BARS]))


def _rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a nested mapping as (phrase, value) rows with formatted numbers."""
    return [(words(key), _shown(key, value)) for key, value in leaves(values, " · ")]


def _shown(key: str, value: object) -> str:
    rounded = number(value)
    if rounded is not None and 0 <= rounded <= 1 and re.search(r"(share|rate|ratio|fraction)$", key):
        return percent(rounded)
    if rounded is not None:
        return figure(rounded)
    if isinstance(value, list) and len(value) > 6 and all(number(item) is not None for item in value):
        return f"{len(value):,} values, {figure(min(value))} to {figure(max(value))}"
    return "none" if value in ({}, [], None) else plain(value)
