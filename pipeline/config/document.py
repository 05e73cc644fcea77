"""Configuration files in YAML, with problems reported by line."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import ConfigError, Problem

NULL = "tag:yaml.org,2002:null"
MOST_NODES = 100_000
"""Upper limit of values in a document, because nested aliases multiply them."""
MOST_LEVELS = 50
"""Upper limit of nested sections and lists."""


def load_document(file: Path, sections: Collection[str], remedy: str) -> Any:
    """Return the values of a YAML file.

    Args:
        file: one document.
        sections: names of sections, which must not be empty.
        remedy: completes messages about files that cannot be read.

    Raises:
        ConfigError: the file cannot be read, gives a key twice or an empty section, or refers to itself.
    """
    try:
        text = file.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        problems = [] if node is None else list(_Checker(file, sections).check(node))
        values = None if problems else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = (
            "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        )
        raise ConfigError([Problem("--config", str(file), f"cannot be read: {reason}", remedy)]) from error
    if problems:
        raise ConfigError(problems)
    return values


class _Checker:
    """Checker of a document's YAML nodes."""

    def __init__(self, file: Path, sections: Collection[str]) -> None:
        self._file = file
        self._sections = sections
        self._keys: dict[str, Any] = {}
        self._nodes = 0

    def check(self, node: Any, path: str = "", above: tuple[Any, ...] = ()) -> Iterator[Problem]:
        """Yield a problem for each duplicate key, empty section and recursive alias.

        Raises:
            ValueError: the document has more than MOST_NODES values or MOST_LEVELS levels.
        """
        self._nodes += 1
        if any(node is parent for parent in above):
            yield self._problem(node, f"{path or 'it'} refers to itself", "write its values out")
        elif len(above) > MOST_LEVELS:
            raise ValueError(f"it has more than {MOST_LEVELS} nested levels")
        elif self._nodes > MOST_NODES:
            raise ValueError(f"it is too large: its aliases stand for more than {MOST_NODES:,} values")
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                inner = "defaults" if path == "defaults" else f"{path}[{number}]"
                yield from self.check(item, inner, (*above, node))
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                yield from self._check_key(key, value, path, (*above, node))

    def _check_key(self, key: Any, value: Any, path: str, above: tuple[Any, ...]) -> Iterator[Problem]:
        name = f"{path}.{key.value}" if path else str(key.value)
        first = self._keys.setdefault(name, key)
        if first is not key:
            shown, line = name.removeprefix("defaults."), first.start_mark.line + 1
            yield self._problem(key, f"{shown} is given twice, first in line {line}", "keep one of them")
        if name in self._sections and isinstance(value, yaml.ScalarNode) and value.tag == NULL:
            yield self._problem(key, f"{name} is empty", "give its values, or leave it out")
        yield from self.check(value, name, above)

    def _problem(self, node: Any, rule: str, remedy: str) -> Problem:
        return Problem(f"{self._file}:{node.start_mark.line + 1}", None, rule, remedy)
