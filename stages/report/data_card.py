"""The data card: row counts and token lengths of tokenize's files."""

from collections.abc import Mapping
from typing import Any

from stages.report.artifacts import mapping
from stages.report.text import figure, shorten, words

MAX_FILES, MAX_TEXT = 8, 300
COUNTS = ("rows_in", "rows_out", "dropped", "truncated", "duplicates")
PERCENTILES = ("50", "95", "100")


def data_card(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per file of tokenize's result.json, in the order of the page's columns."""
    files = [(str(name), mapping(card)) for name, card in mapping(result.get("files")).items()]
    return [
        (shorten(name, MAX_TEXT), *(_count(card.get(key)) for key in COUNTS), _lengths(card))
        for name, card in files[:MAX_FILES]
    ]


def _count(value: object) -> str:
    """Return a number, or the numbers of rows by reason or column."""
    if not isinstance(value, dict):
        return figure(value)
    text = ", ".join(f"{figure(rows)}: {words(str(reason))}" for reason, rows in value.items())
    return shorten(text, MAX_TEXT) or "0"


def _lengths(card: Mapping[str, Any]) -> str:
    """Return the median, 95th percentile and maximum of the tokens in each column."""
    columns = []
    for column, values in mapping(card.get("lengths")).items():
        percentiles = mapping(mapping(values).get("percentiles"))
        columns.append(f"{column} {' / '.join(figure(percentiles.get(name)) for name in PERCENTILES)}")
    return shorten(", ".join(columns), MAX_TEXT)
