"""Templates of files that an outside program reads: YAML whose values refer to grpoflow's keys.

A value is one of

- a constant, which the user's `upstream` may replace;
- $KEY: the value of grpoflow's key, which the user sets instead;
- $derived.NAME or $paths.NAME: a value or path of the run, which `upstream` may replace;
- a text with ${KEY}, ${derived.NAME} or ${paths.NAME}, which `upstream` may replace;
- {value: VALUE, key: KEY}: one of these values, computed from grpoflow's KEY;
- {value: VALUE, fixed: REASON}: one of these values, which must stay as it is rendered;
- {value: $KEY, default: VALUE}: the value of grpoflow's key, or VALUE if it is null.

So a template says both what is rendered and which fields `upstream` may set (stages/engines/upstream.py). A
table of fields that are rendered elsewhere has the same form, without values: FIELD: $KEY or {fixed: REASON}.
With {any_type: true} a field accepts values of any type.
"""

import copy
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

ABSENT = object()
"""Value of a reference whose field is left out of the file."""
_IN_TEXT = re.compile(r"\$\{([\w.]+)\}")


@dataclass(frozen=True)
class Entry:
    """One value of a template, or one field of a table."""

    value: Any = None
    key: str = ""
    """grpoflow's key that it is rendered from, or empty."""
    fixed: str = ""
    """Reason why it must stay as it is rendered, or empty."""
    default: Any = None
    """Value that is rendered if `value` refers to null."""
    any_type: bool = False
    """True if `upstream` accepts values of any type."""

    @property
    def is_free(self) -> bool:
        """True if `upstream` may set it."""
        return not self.key and not self.fixed


@functools.cache
def entries(template: Path) -> dict[str, Entry]:
    """Return the values of a template, or the fields of a table, by dotted path in order."""
    return dict(_entries(yaml.safe_load(template.read_text(encoding="utf-8")), ""))


def _entries(values: Mapping[str, Any], start: str) -> Iterator[tuple[str, Entry]]:
    for name, value in values.items():
        path = f"{start}{name}"
        if isinstance(value, Mapping) and not value.keys() & {"value", "fixed", "any_type"}:
            yield from _entries(value, f"{path}.")
            continue
        entry = Entry(**value) if isinstance(value, Mapping) else Entry(value)
        if entry.is_free and _is_reference(entry.value):
            is_key = not entry.value.startswith(("$paths.", "$derived."))
            entry = dataclasses.replace(entry, key=entry.value[1:] if is_key else "")
        yield path, entry


def fill(
    template: Path,
    job: Any,
    paths: Any,
    derived: Mapping[str, Any],
    known: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """Return the content of a file; `job` is a dataclass with the sections of the configuration.

    `known` returns True if the program's version has the field at a path; None: it has all.
    """
    sources = SimpleNamespace(**vars(job), job=job, paths=paths, derived=SimpleNamespace(**derived))
    result: dict[str, Any] = {}
    for path, entry in entries(template).items():
        value = _resolve(entry.value, sources)
        if value is None:
            value = _resolve(entry.default, sources)
        if value is ABSENT or (known is not None and not known(path)):
            continue
        *groups, name = path.split(".")
        section = result
        for group in groups:
            section = section.setdefault(group, {})
        section[name] = _plain(value)
    return result


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith("$") and not value.startswith("${")


def _resolve(value: Any, sources: object) -> Any:
    if _is_reference(value):
        return attrgetter(value[1:])(sources)
    if isinstance(value, str):
        return _IN_TEXT.sub(lambda match: str(attrgetter(match[1])(sources)), value)
    return copy.deepcopy(value)  # callers may change the content


def _plain(value: Any) -> Any:
    """Return a value as YAML writes it."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
