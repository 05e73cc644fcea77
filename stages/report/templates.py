"""Rendering of the pages' templates: every value is escaped, and an undefined one is an error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined
from markupsafe import Markup

from stages.report.artifacts import mapping
from stages.report.samples import verdict
from stages.report.text import duration, figure, moment, neutral, percent, shorten, size, words

HERE = Path(__file__).parent


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Return a page of this package as HTML, with the style sheet that all of them share."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_neutralized,
    )
    filters = (duration, figure, moment, parts, percent, size, text, verdict, words)
    environment.filters.update({function.__name__: function for function in filters})
    return environment.get_template(template).render(values, style=file_content("style.css"))


def file_content(name: str) -> Markup:
    """Return a file of this package for inclusion in a page."""
    return Markup((HERE / name).read_text(encoding="utf-8"))  # noqa: S704 (our own file)


def text(value: object, limit: int) -> str:
    """Return a text of a model or user, shortened to `limit` characters; empty if it is missing."""
    return "" if value is None or isinstance(value, Undefined) else shorten(str(value), limit)


def parts(value: object) -> list[tuple[str, Any]]:
    """Return the rewards of the first eight reward functions."""
    return list(mapping(value).items())[:8]


def _neutralized(value: Any) -> Any:
    """Make control characters visible in every text before it is escaped."""
    return neutral(value) if isinstance(value, str) and not isinstance(value, Markup) else value
