"""The data card: tokenize's result.json as tables, small histograms and decoded samples."""

import re
from collections.abc import Mapping
from typing import Any

from stages.report.artifacts import mapping
from stages.report.configuration import MAX_ROWS, leaves, plain
from stages.report.text import figure, number, percent, shorten, words

MAX_FILES, MAX_LENGTHS, MAX_BARS, MAX_FIELDS = 8, 40, 40, 6
PERCENTILES = ("0", "50", "95", "100")


def data_card(result: Mapping[str, Any], text_limit: int) -> dict[str, Any]:
    """Return the parts of the card, ready to show; {} if nothing was recorded.

    Keys: files (names), counts (rows of a name and its value per file), lengths (see `_length`), samples
    ((file, (field, text) pairs) of each first row) and remaining ((key, value) of everything else).
    """
    files = [
        (str(name), card) for name, card in mapping(result.get("files")).items() if isinstance(card, dict)
    ]
    files = files[:MAX_FILES]
    counts: dict[str, dict[str, str]] = {}
    lengths, samples = [], []
    for file, card in files:
        for key, value in _rows({key: card[key] for key in card if key not in ("lengths", "samples")}):
            counts.setdefault(key, {})[file] = value
        lengths += [
            _length(file, str(column), mapping(v)) for column, v in mapping(card.get("lengths")).items()
        ]
        rows = card.get("samples")
        for row in rows[:1] if isinstance(rows, list) else []:
            fields = [*mapping(row).items()][:MAX_FIELDS]
            samples.append(
                (file, [(words(str(key)), shorten(str(value), text_limit)) for key, value in fields])
            )
    names = [name for name, _ in files]
    remaining = _rows({key: value for key, value in result.items() if key != "files" or not files})
    if not names and not remaining:
        return {}
    return {
        "files": names,
        "counts": [(key, *(values.get(name, "–") for name in names)) for key, values in counts.items()][
            :MAX_ROWS
        ],
        "lengths": lengths[:MAX_LENGTHS],
        "samples": samples,
        "remaining": remaining,
    }


def _length(file: str, column: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean and PERCENTILES of a column's token counts, and the bars (0 to 1) of its histogram."""
    percentiles = mapping(values.get("percentiles"))
    heights = mapping(values.get("histogram")).get("rows")
    bars = [max(0.0, number(height) or 0.0) for height in heights] if isinstance(heights, list) else []
    highest = max(bars, default=0.0) or 1.0
    return {
        "file": file,
        "column": column,
        "figures": [figure(values.get("mean")), *(figure(percentiles.get(name)) for name in PERCENTILES)],
        "bars": [bar / highest for bar in bars[:MAX_BARS]],
    }


def _rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
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
