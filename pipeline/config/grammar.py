"""Hydra's grammar for overrides: parsing one, and writing a value so that it is parsed unchanged."""

import functools
import json
import shlex
from typing import Any

from pipeline.errors import NotComposed, Problem
from stages.base.redact import redact

EXAMPLE = '["--a=b","c d"]'


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Any:
    """Parse an override; raise NotComposed if it does not follow the grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, sign, value = text.partition("=")
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        quoted = EXAMPLE if value[:1] in ("[", "{", "'", '"') else word(value)
        remedy = f"quote text inside the value, for example {shlex.quote(f'{key}={quoted}')}"
        remedy = remedy if sign else "it is KEY=VALUE, +KEY=VALUE or ~KEY"
        raise NotComposed([Problem(key, redact(value), "does not follow Hydra's grammar", remedy)]) from error


def key_of(override: str) -> str:
    """Return the key of an override, without the sign of an addition or a deletion."""
    return override.lstrip("+~").partition("=")[0]


def word(value: Any) -> str:
    """Return a value in the grammar; dates and other types of YAML become text."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{word(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(word, value)) + "]"
    if isinstance(value, str):
        ends = len(value) - len(value.rstrip("\\"))  # backslashes need escaping before a quote only
        return "'" + value.replace("\\'", "\\\\'").replace("'", "\\'") + "\\" * ends + "'"
    return json.dumps(value) if isinstance(value, (bool, int, float, type(None))) else word(str(value))
