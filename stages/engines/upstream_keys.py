"""Keys of an outside program that grpoflow does not model: `+engine.upstream.KEY=VALUE`.

They are merged last into the rendered files, and are part of the fingerprint of every stage that reads the
engine's section. A key that grpoflow renders itself is refused, and the message names grpoflow's key. Whether
any other key exists is a question for the program: a script asks it for its configuration (`Schema`), in the
engine's interpreter or checkout. Without either, plan accepts the key with a note.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.base.errors import Problem
from stages.base.reader import TYPE_NAMES

Rendered = Mapping[str, str]
"""Key of the program, or a group of keys -> grpoflow's key that it is rendered from, such as train.beta; or
a reason that begins with "=": why it must stay as it is rendered."""
TYPES = {**TYPE_NAMES, list: "a list"}


@dataclass(frozen=True)
class Schema:
    """Configuration of a program, as the program itself or its sources tell it."""

    defaults: Mapping[str, Any]
    """Dotted key -> default; None if it has none or accepts any type, {} for a group that takes any keys."""
    open: tuple[str, ...] = ()
    """Groups that take any other key, too; "" stands for the whole configuration."""

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Read what a script printed: {"defaults": {KEY: DEFAULT}, "open": [GROUP]} as JSON."""
        values = json.loads(text)
        return cls(values["defaults"], tuple(values.get("open", ())))

    def problems(self, path: str, added: Mapping[str, Any], source: str) -> Iterator[Problem]:
        """Yield a problem for each key that the program does not have, or whose type is not the default's.

        Args:
            path: key of the configuration that holds `added`, for messages.
            added: keys that a user adds, nested as in the program's files.
            source: what was asked, for messages.
        """
        for name, value in leaves(added):
            if fault := self._fault(name, value):
                yield Problem(f"{path}.{name}", value, *fault, source)

    def _fault(self, name: str, value: Any) -> tuple[str, str] | None:
        known = next((start for start in _starts(name) if start in self.defaults), None)
        if known is None:
            return self._unknown(name)
        default = self.defaults[known]
        if default is None or default == {}:
            return None
        if known != name:
            return f"{known} is no group of keys", f"set {known} itself"
        if has_type_of(default, value):
            return None
        rule = f"must be {TYPES[type(default)]}: its default is {json.dumps(default)}"
        return rule, "give a value of this type"

    def _unknown(self, name: str) -> tuple[str, str] | None:
        if below := self._names_below(name):
            return "is a group of keys", f"set one of its keys: {', '.join(below)}"
        if any(start in self.open for start in (*_starts(name), "")):
            return None
        if near := difflib.get_close_matches(name, self.defaults, 1, 0.7):
            return "unknown key", f"did you mean {near[0]}?"
        known = next(below for start in (*_starts(name), "") if (below := self._names_below(start)))
        return "unknown key", f"known: {', '.join(known)}"

    def _names_below(self, group: str) -> list[str]:
        """Return the names in a group of keys; none if there is no such group."""
        start = f"{group}." if group else ""
        names = (name.removeprefix(start) for name in self.defaults if name.startswith(start))
        return list(dict.fromkeys(name.partition(".")[0] for name in names))


def rendered_problems(path: str, added: Mapping[str, Any], rendered: Rendered) -> Iterator[Problem]:
    """Yield a problem for each added key that grpoflow renders; `path` is the key that holds `added`."""
    for name, value in leaves(added):
        above = next((start for start in _starts(name) if start in rendered), None)
        below = next((key for key in rendered if key.startswith(f"{name}.")), None)
        if found := above or below:
            yield Problem(f"{path}.{name}", value, *_refusal(found, rendered[found]))


def group_problems(path: str, added: Mapping[str, Any], groups: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each added key that is in none of `groups`, and would have no effect."""
    for name, value in leaves(added):
        starts = [f"{group}." for group in groups]
        if not any(f"{name}.".startswith(start) or start.startswith(f"{name}.") for start in starts):
            rule = "is in no group of keys that may be added"
            yield Problem(f"{path}.{name}", value, rule, f"begin it with one of: {', '.join(groups)}")


def _refusal(key: str, reason: str) -> tuple[str, str]:
    """Return rule and remedy for a key that grpoflow renders."""
    if reason.startswith("="):
        return f"must stay as grpoflow renders {key}: {reason[1:]}", "leave it out"
    return f"must not be set here: grpoflow renders {key} from {reason}", f"set {reason}"


def notes(path: str, added: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note for the plan if keys are set."""
    if added:
        keys = ", ".join(f"{name}={json.dumps(value)}" for name, value in leaves(added))
        yield f"{path} sets {keys}: rules and memory estimates do not consider these keys"


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
        path = f"{start}.{name}".strip(".")
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def has_type_of(default: Any, value: Any) -> bool:
    """Return True if a value has the type of the default; whole numbers and fractions are both numbers.

    Programs declare numbers with whole defaults that may be fractions (verl: entropy_coeff: 0).
    """
    if isinstance(default, int | float) and not isinstance(default, bool):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)


def _starts(path: str) -> Iterator[str]:
    """Yield `path` and all paths above it, the longest first."""
    while path:
        yield path
        path = path.rpartition(".")[0]
