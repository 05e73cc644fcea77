"""Keys of an outside program that grpoflow does not model: `+engine.upstream.SECTION.KEY=VALUE`.

They are merged last into the rendered files, and are part of the fingerprint of every stage that reads the
engine's section. An engine supports them with

- a field `upstream: UpstreamKeys` in its settings and `upstream: {}` in its YAML;
- a record of the program's fields for each contract, which tests/upstream/records.py writes from the
  program's classes: `classes` (class -> field -> default; a mapping of defaults is a group of fields, and a
  list in place of fields a section that is a list), `sections` (path in the rendered files -> class) and
  `open` (classes that take any other key, too);
- templates of its files (stages/engines/template.py), and a handwritten table in the same form for fields
  that are rendered elsewhere: section or class -> field -> $KEY, {fixed: REASON} or {any_type: true}. Keys of
  open classes may be added;
- `add_rule` in its rules, `notes` in its notes, and `outside.dump(values, added)` for each rendered file.

tests/stages/engines/upstream_cases.py lists the engines, whose tables are tested against what is rendered.
"""

import difflib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stages.base.reader import TYPE_NAMES
from stages.base.rules import Broken, Rules, value_at
from stages.engines.template import Entry, entries

TYPES = {**TYPE_NAMES, list: "a list"}


@dataclass(frozen=True)
class Field:
    """One field of a program's configuration."""

    cls: str
    """Class that declares it."""
    default: Any
    """Default; None if it has none, {} if it takes any keys."""
    entry: Entry
    """What the templates and tables say about it."""


@dataclass(frozen=True)
class Upstream:
    """All fields of a program's configuration."""

    fields: Mapping[str, Field]
    """Path below `upstream` -> field."""
    open: tuple[str, ...]
    """Paths of sections that take any other key, too."""

    def fault(self, path: str, value: Any) -> Broken:
        """Return why a key must not be set, and the remedy; None if it may."""
        known = next((start for start in _starts(path) if start in self.fields), None)
        if known is None:
            return self._unknown(path)
        default, entry = self.fields[known].default, self.fields[known].entry
        if entry.key:
            return f"must not be set here: grpoflow renders it from {entry.key}", f"set {entry.key}"
        if entry.fixed:
            return f"must stay as grpoflow renders it: {entry.fixed}", "leave it out"
        if entry.any_type or default in (None, {}):
            return None
        if known != path:
            return f"{known} is no group of keys", f"set {known} itself"
        if fits(default, value):
            return None
        rule = f"must be {TYPES[type(default)]}: its default is {json.dumps(default)}"
        return rule, "give a value of this type"

    def knows(self, path: str) -> bool:
        """Return True if there is a field or a group of fields at a path."""
        return path in self.fields or bool(self._names_below(path))

    def _unknown(self, path: str) -> Broken:
        if below := self._names_below(path):
            return "is a group of keys", f"set one of its keys: {', '.join(below)}"
        if any(start in self.open for start in _starts(path)):
            return None
        if near := difflib.get_close_matches(path, self.fields, 1, 0.7):
            return "unknown key", f"did you mean {near[0]}?"
        known = next(below for start in (*_starts(path), "") if (below := self._names_below(start)))
        return "unknown key", f"known: {', '.join(known)}"

    def _names_below(self, path: str) -> list[str]:
        """Return the names in a group of keys; none if there is no such group."""
        start = f"{path}." if path else ""
        names = (name.removeprefix(start) for name in self.fields if name.startswith(start))
        return list(dict.fromkeys(name.partition(".")[0] for name in names))


@functools.cache
def load(
    table: Path, *records: tuple[str, Path, str], templates: tuple[tuple[str, Path], ...] = ()
) -> Upstream:
    """Return the fields of a program, whose handwritten table is `table`.

    A record or template follows the path of its file's content below `upstream`; a record is followed by the
    section that the program reads, which is empty for all of them.
    """
    limits = dict(entries(table))
    for start, file in templates:
        listed = entries(file).items()
        limits |= {_join(start, name): entry for name, entry in listed if not entry.is_free}
    fields, opened = {}, []
    for start, record, part in records:
        content = _read(record)
        for section, cls in content["sections"].items():
            if part not in ("", section):
                continue
            location, declared = _join(start, section), content["classes"][cls]
            known = dict(leaves(declared)) if isinstance(declared, dict) else {"": declared}
            if cls in content.get("open", ()):
                opened.append(location)
                known = dict.fromkeys([*_below(cls, limits), *_below(location, limits)]) | known
            for name, default in known.items():
                path = _join(location, name)
                entry = limits.get(path) or limits.get(_join(cls, name)) or Entry()
                fields[path] = Field(cls, default, entry)
    return Upstream(fields, tuple(opened))


def _below(group: str, limits: Mapping[str, Entry]) -> list[str]:
    """Return the names of the entries in a group; the group itself has an empty name."""
    return [path[len(group) + 1 :] for path in limits if f"{path}.".startswith(f"{group}.")]


@functools.cache
def _read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def add_rule(rules: Rules[Any], section: str, fields: Callable[[Any], Upstream], source: str) -> None:
    """Add a rule that checks each key of a section's `upstream` against the fields of the rules' subject."""
    path = f"{section}.upstream"

    def added(subject: Any) -> dict[str, Any]:
        return dict(leaves(value_at(subject, path)))

    rules.must(
        f"{path}.{{}}",
        lambda value, subject, name: fields(subject).fault(name, value),
        source,
        name="upstream",
        text="Require a key that the engine's program has, and a value of its type.",
        each=added,
        value=lambda subject, name: added(subject)[name],
    )


def notes(section: str, added: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note for the plan if keys are set."""
    if added:
        keys = ", ".join(f"{name}={json.dumps(value)}" for name, value in leaves(added))
        yield f"{section}.upstream sets {keys}: rules and memory estimates do not consider these keys"


def comment(added: Mapping[str, Any]) -> str:
    """Return the lines at the start of a rendered file that name the added keys; empty without any."""
    if not added:
        return ""
    lines = [f"#   {name}={json.dumps(value)}\n" for name, value in leaves(added)]
    return "".join(["# Keys that `upstream` of the configuration sets:\n", *lines])


def merged(values: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with `added` merged into them: groups key by key, everything else replaced."""
    result = dict(values)
    for name, value in added.items():
        below = result.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            result[name] = merged(below, value)
        else:
            result[name] = value
    return result


def leaves(values: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and value of all keys that are not groups; an empty group counts as a value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, _join(start, name))
        else:
            yield _join(start, name), value


def fits(default: Any, value: Any) -> bool:
    """Return True if a value has the type of the default; a whole number is also a number."""
    if isinstance(default, float) and not isinstance(value, bool):
        return isinstance(value, int | float)
    return type(value) is type(default)


def _starts(path: str) -> Iterator[str]:
    """Yield `path` and all paths above it, the longest first."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _join(start: str, name: str) -> str:
    return f"{start}.{name}".strip(".")
