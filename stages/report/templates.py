"""The pages' templates: every value is escaped, none is missing silently."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stages.report.text import duration, figure, moment, neutral, number, percent, size, words

HERE = Path(__file__).parent


def environment() -> Environment:
    """Create the template environment with the filters that the templates use."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    filters = (duration, figure, moment, number, percent, size, words)
    environment.filters.update({function.__name__: function for function in filters})
    return environment


def file_content(name: str) -> Markup:
    """Return a file of this package for inclusion in a page."""
    return Markup((HERE / name).read_text(encoding="utf-8"))  # noqa: S704 (our own file)


def _shown(value: Any) -> Any:
    """Every value on its way into the page, before escaping: no text slips past a forgotten filter."""
    return neutral(value) if isinstance(value, str) and not isinstance(value, Markup) else value
