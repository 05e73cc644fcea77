"""Rules and notes of engines in YAML.

Rules: TABLE: {ID: {key: KEY, CONDITION: VALUE, source: SOURCE, …}}.

CONDITION is one of CONDITIONS. Its value is a constant; for `be` $PATH refers to the value at a path of the
rules' subject, for the others it is a number or a path. label, why, remedy, each, when, value and unless are
those of stages/base/rules.py, with paths in place of functions; `when` is a path whose value must be true,
or {PATH: VALUE}. Notes: NAME: TEXT, in which {job.…} stands for values of a job.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from stages.base.rules import Rules, at_least, at_most, be, divide, multiple_of, value_at

CONDITIONS: dict[str, Callable[..., Any]] = {
    "be": be,
    "at_least": at_least,
    "at_most": at_most,
    "divide": divide,
    "multiple_of": multiple_of,
}


@functools.cache
def _read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def add_rules(rules: Rules[Any], file: Path) -> None:
    """Add the rows that a file has in the table with the name of `rules`."""
    for name, row in _read(file)[rules.name].items():
        (condition,) = CONDITIONS.keys() & row
        words = {key: row[key] for key in ("label", "why", "remedy") if key in row}
        number, each = row[condition], row.get("each")
        if isinstance(number, str) and number.startswith("$"):
            number = _function(number[1:])
        rules.must(
            row["key"],
            CONDITIONS[condition](number, **words),
            row["source"],
            name=name,
            each=_function(each) if isinstance(each, str) else each,
            when=_when(row["when"]) if "when" in row else None,
            value=_function(row["value"]) if "value" in row else None,
            unless=tuple(row.get("unless", ())),
        )


PLAIN: Mapping[str, tuple[object, str]] = _read(Path(__file__).with_name("plain_grpo.yaml"))
"""Key of `train` -> the only value that external programs implement, and what they do."""
LOSS = "importance_sampling_level use_bias_correction_kl mask_truncated_completions"
"""Keys of upstream's loss function."""


def plain(rules: Rules[Any], engine: str, sources: Mapping[str, str]) -> None:
    """Add a rule for keys of PLAIN; `sources` maps files of the program to the keys that they decide."""
    for source, keys in sources.items():
        for key in keys.split():
            value, why = PLAIN[key]
            rules.must(f"train.{key}", be(value, f"{engine} {why}"), source)


def notes(file: Path, job: Any, applies: Mapping[str, bool]) -> Iterator[str]:
    """Yield the notes that apply, in the order of `applies`."""
    texts = _read(file)
    yield from (texts[name].format(job=job) for name, holds in applies.items() if holds)


def _function(path: str) -> Callable[..., Any]:
    return lambda subject, *item: value_at(subject, path.format(*item))


def _when(condition: str | dict[str, Any]) -> Callable[..., bool]:
    if isinstance(condition, str):
        return lambda subject, *item: bool(_function(condition)(subject, *item))
    return lambda subject, *item: all(value_at(subject, key) == value for key, value in condition.items())
