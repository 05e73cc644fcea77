"""Events of the history: one JSON object per line, checked before use."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MAX_TIME_S = 1e11
"""Upper limit of valid times: Unix time, seconds (the year 5138)."""
STAGE, ARTIFACT, RUN = (re.compile(form) for form in (r"\w+", r"\w+/[0-9a-f]+", r"[\w-]+"))


def _are_texts(values: Iterable[Any], form: re.Pattern[str] | None = None) -> bool:
    return all(isinstance(value, str) and (form is None or form.fullmatch(value)) for value in values)


def is_text(value: Any) -> bool:
    """Return True for text."""
    return isinstance(value, str)


EVENTS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "started": {
        "overrides": lambda value: isinstance(value, list) and _are_texts(value),
        "config": lambda value: isinstance(value, dict),
        "artifacts": lambda value: (
            isinstance(value, dict) and _are_texts(value, STAGE) and _are_texts(value.values(), ARTIFACT)
        ),
    },
    "finished": {"result": lambda value: isinstance(value, dict)},
    "failed": {"stage": is_text, "message": is_text},
    "interrupted": {"stage": is_text, "message": is_text},
    "named": {"name": is_text},
    "pinned": {},
    "unpinned": {},
}
"""Kind of event -> its required values, each with a validity check."""


def is_event(value: Any) -> bool:
    """Return True if a line's JSON is a valid event: of a known kind, with values of the right types."""
    if not isinstance(value, dict) or not _are_texts([value.get("run"), value.get("event")]):
        return False
    when = value.get("time_s")
    is_time = isinstance(when, int | float) and not isinstance(when, bool) and 0 <= when < MAX_TIME_S
    is_id = RUN.fullmatch(value["run"]) is not None  # run ids are used in file names
    checks = EVENTS.get(value["event"])
    if checks is None or not is_time or not is_id:
        return False
    return all(key in value and is_valid(value[key]) for key, is_valid in checks.items())


def read_event(line: str) -> dict[str, Any] | None:
    """Return the event in a line of JSON; None if it is malformed."""
    with contextlib.suppress(ValueError, RecursionError):
        event = json.loads(line)
        if is_event(event):
            return dict(event)
    return None
