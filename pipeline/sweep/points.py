"""Points of a sweep: expansion of a command line, and their output as tables and as the graph of a plan."""

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.config.compose import config_files
from pipeline.config.grammar import key_of, parse
from pipeline.config.sections import Config, quote_address
from pipeline.errors import ConfigError, Problem
from pipeline.plan import explain
from pipeline.plan.graph import Plan
from pipeline.run.halving import rung_steps
from pipeline.store.store import Key, Store
from pipeline.terminal import Column, Table, as_json, say
from stages.base.identity import identity
from stages.base.keys import flat
from stages.base.redact import redact, redacted
from stages.report.headline import indistinct
from stages.report.text import duration

RULE = "must have one value in all points of a sweep: it changes no trained model"
SAME_CHECKS = "must have one value in all points of a sweep: sweep.stop compares checks after equal steps"
VALIDATE_EVERY = "train.validate_every"
ACCURACIES = ("accuracy_sft", "accuracy_grpo", "gain")
MAX_NAMES = 12


@dataclass
class Point:
    """One point of a sweep."""

    number: int
    overrides: list[str]
    state: str = "pending"
    """pending, finished, failed, stopped early (sweep.stop), or invalid (its configuration is refused; it is
    left out)."""
    message: str = ""
    """Reason why it is invalid, failed or stopped early."""
    run: str | None = None
    """Id of its run."""
    result: dict[str, Any] = field(default_factory=dict)
    """Result of the evaluation."""
    artifacts: dict[str, str] = field(default_factory=dict)
    """Stage -> STAGE/FIRST-16-DIGITS."""
    rung: dict[str, Any] | None = None
    """The rung (pipeline/run/halving.py) at which it was stopped early; None if it was not."""

    @property
    def values(self) -> dict[str, str]:
        """Values of the overrides, by key."""
        return dict(override.partition("=")[::2] for override in self.overrides)


def without_secrets(points: Sequence[Point]) -> list[Point]:
    """Return copies of points without the secrets in overrides and messages."""
    return [
        replace(point, overrides=redacted(point.overrides), message=redact(point.message)) for point in points
    ]


def accuracy(result: Mapping[str, Any]) -> float:
    """Return the accuracy after GRPO, by which points are sorted; -1 without a result."""
    return float(result.get("accuracy_grpo", -1.0))


def varied(points: Sequence[Point]) -> list[str]:
    """Return the keys whose values differ between points."""
    values: dict[str, set[str]] = {}
    for point in points:
        for key, value in point.values.items():
            values.setdefault(key, set()).add(value)
    return [key for key, seen in values.items() if len(seen) > 1]


def differing_overrides(point: Point, keys: Sequence[str]) -> str:
    """Return the overrides of a point that differ from other points, else its number."""
    return " ".join(o for o in point.overrides if o.partition("=")[0] in keys) or f"point {point.number}"


def table(points: Sequence[Point]) -> str:
    """Return the CSV table, one row per point: number, state, differing keys, result, run and message."""
    keys = varied(points)
    results = list(dict.fromkeys(key for point in points for key in point.result))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["point", "state", *keys, *results, "run", "message"])
    for point in points:
        row = [point.number, point.state, *(point.values.get(key, "") for key in keys)]
        writer.writerow(
            [*row, *(point.result.get(key, "") for key in results), point.run or "", point.message]
        )
    return text.getvalue()


def show(points: Sequence[Point], out: Console) -> None:
    """Print the points with their differing keys and accuracies, the best first."""
    keys = varied(points)
    figures = [Column(name, "number") for name in ("before grpo", "after grpo", "gain")]
    shown = Table([Column("point", "number"), *figures, *keys, Column("state", "text")])
    for point in sorted(points, key=lambda point: -accuracy(point.result)):
        values = [f"{point.result[key]:.3f}" if key in point.result else "" for key in ACCURACIES]
        state = point.state if point.state == "finished" else f"{point.state}: {point.message}"
        shown.add(str(point.number), *values, *(point.values.get(key, "") for key in keys), state)
    out.print(shown)


def noise_note(points: Sequence[Point]) -> str | None:
    """Return which points' accuracies are within noise of the best one's; None if there are none."""
    done = [point for point in points if "accuracy_grpo" in point.result]
    ranked = [(point.number, point.result) for point in sorted(done, key=lambda p: -accuracy(p.result))]
    close = indistinct(ranked)
    if not close:
        return None
    names = ", ".join(map(str, sorted(close)[:MAX_NAMES])) + (", …" if len(close) > MAX_NAMES else "")
    count = f"{len(close)} of {len(ranked) - 1} other points"
    return f"within noise of the best, point {ranked[0][0]}: {count} ({names})"


def json_lines(points: Sequence[Point], plans: Mapping[int, Plan], store: Store | None) -> str:
    """Return one line of JSON per point, with the stages to run; checks each artifact once."""
    complete: dict[Key, bool] = {}
    lines = []
    for point in points:
        to_run = []
        for spec in plans[point.number].requested if point.number in plans else ():
            assert store is not None
            if spec.key not in complete:
                rebuilt = spec.name in plans[point.number].rebuilt
                complete[spec.key] = not rebuilt and store.problem(spec.key) is None
            to_run += [] if complete[spec.key] else [spec.name]
        fields = {
            key: getattr(point, key) for key in ("number", "overrides", "state", "message", "artifacts")
        }
        lines.append(as_json({**fields, "to_run": to_run}, indent=None))
    return "\n".join(lines)


def show_merged(plans: dict[int, Plan], store: Store, out: Console) -> None:
    """Print the merged graph: the number of artifacts per stage, and their expected duration."""
    needed = Counter(spec.key for plan in plans.values() for spec in plan.requested)
    rebuilt = {name for plan in plans.values() for name in plan.rebuilt}
    to_run = {key for key in needed if key.stage in rebuilt or store.problem(key) is not None}
    expected, cards = _expected(plans.values(), store)
    runs, total = Counter(key.stage for key in to_run), Counter(key.stage for key in needed)
    counts = (Column(name, "number") for name in ("to run", "cached", "cards"))
    shown = Table(["stage", *counts, "one takes"], f"{len(plans)} points, one graph")
    for stage, count in total.items():
        known = [seconds for key, seconds in expected.items() if key.stage == stage and seconds is not None]
        elapsed = list(dict.fromkeys(map(duration, (min(known), max(known))))) if known else []
        counted = (runs[stage], count - runs[stage], cards[stage])
        shown.add(stage, *map(str, counted), " to ".join(elapsed))
    out.print(shown)
    say(f"{len(to_run)} stages to run; {sum(needed[key] for key in to_run)} if each point ran alone")
    durations = [expected[key] for key in to_run]
    if to_run:
        unknown = durations.count(None)
        more = f", and {unknown} stages that have never run" if unknown else ""
        say(f"expected from earlier runs: {duration(sum(filter(None, durations)))}{more}")


def show_rungs(plans: Sequence[Plan], stopped: int) -> None:
    """Print where trainings may be stopped early, and how many points an earlier process has stopped."""
    sweep = plans[0].config.sweep
    steps = sorted({step for plan in plans for step in rung_steps(plan.config.train, sweep)})
    shown = ", ".join(map(str, steps[:MAX_NAMES])) + (", …" if len(steps) > MAX_NAMES else "")
    share = f"the best 1/{sweep.reduction_factor} of the trainings that have reached it so far go on"
    say(f"sweep.stop={sweep.stop}: rungs after steps {shown}; at each {share}")
    if stopped:
        say(f"{stopped} of {len(plans)} points were stopped early, and stay so")


def _expected(plans: Iterable[Plan], store: Store) -> tuple[dict[Key, float | None], dict[str, int]]:
    """Return the expected seconds of each artifact, and the cards of each stage.

    Only one plan is explained for each number of steps and size of the model, because that reads manifests.
    """
    rows: dict[tuple[object, ...], explain.Explanation] = {}
    expected: dict[Key, float | None] = {}
    cards: dict[str, int] = {}
    for plan in plans:
        paces = {spec.name: explain.pace_of(spec, plan.config.model) for spec in plan.requested}
        if not set(paces.values()) <= rows.keys():
            explained = {paces[row.stage]: row for row in explain.explain(plan, store)}
            rows = explained | rows
        for spec in plan.requested:
            row = rows[paces[spec.name]]
            cards[spec.name] = max(row.cards, cards.get(spec.name, 0))
            expected.setdefault(spec.key, row.expected_s)
    return expected, cards


def expand(overrides: Sequence[str], config_dir: Path | None = None) -> list[list[str]]:
    """Return the points: every combination of the values of keys with several values.

    Raises:
        ConfigError: an override is malformed, has no list of values, or is a setting of Hydra; or a key with
            several values is given again.
    """
    parsed = {text: parse(text) for text in map(quote_address, overrides)}
    if problems := list(_repeated_keys(parsed)):
        raise ConfigError(problems)
    choices: dict[str, list[str]] = {}
    for text, override in parsed.items():
        key = override.get_key_element()
        if key.lstrip("+~").startswith("hydra"):
            rule = "is a setting of Hydra's own sweeps"
            raise ConfigError([Problem(key, None, rule, "for a search call grpoflow.run from Optuna")])
        choices.pop(key, None)  # of several single values the last counts, as in a run
        choices[key] = _values(text, override, config_dir) if override.is_sweep_override() else [text]
    return [list(point) for point in itertools.product(*choices.values())]


def _repeated_keys(parsed: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each key with several values that is given again."""
    given: dict[str, list[str]] = {}
    for text in parsed:
        given.setdefault(key_of(text), []).append(text)
    for key, texts in given.items():
        if len(texts) > 1 and any(parsed[text].is_sweep_override() for text in texts):
            shown = redact(" ".join(texts))
            yield Problem(key, shown, "is given more than once", f"give all values in one list: {key}=A,B")


def _values(text: str, override: Any, config_dir: Path | None) -> list[str]:
    """Return an override for each of several values."""
    from hydra.core.override_parser.types import Glob

    key = override.get_key_element()
    value = override.value()
    if isinstance(value, Glob):
        folder = f"{override.key_or_group}/"
        files = (name for name in config_files(config_dir) if name.startswith(folder))
        names = value.filter(sorted(name.removeprefix(folder).rpartition(".")[0] for name in files))
        if not names:
            rule = "fits no file of a configuration group"
            raise ConfigError([Problem(key, text.partition("=")[2], rule, f"{key}=A,B")])
        return [f"{key}={name}" for name in names]
    if override.is_discrete_sweep():
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    raise ConfigError([Problem(key, None, "is not a list of values", f"{key}=A,B")])


def check_shared_keys(plans: Iterable[Plan]) -> None:
    """Raise ConfigError if plans differ in keys that all points of a sweep must share.

    These are gates and sweep, train.validate_every with sweep.stop, and keys outside the fingerprints of
    equal artifacts.
    """
    configs: dict[tuple[str, ...], Config] = {}
    keys: set[str] = set()
    limits: dict[str, Any] = {}
    for plan in plans:
        # Points with different gates could share an artifact that one of them exports and another refuses.
        values = {f"gates.{key}": limit for key, limit in vars(plan.config.gates).items()}
        values |= {f"sweep.{key}": value for key, value in vars(plan.config.sweep).items()}
        if plan.config.sweep.stop is not None:
            values[VALIDATE_EVERY] = plan.config.train.validate_every
        keys |= {key for key, value in values.items() if limits.setdefault(key, value) != value}
        first = configs.setdefault(tuple(str(spec.key) for spec in plan.requested), plan.config)
        if first != plan.config:
            before, after = first.plain(), plan.config.plain()
            identities = {**flat(identity(Config, before)), **flat(identity(Config, after))}
            later = flat(after)
            differing = {key for key, value in flat(before).items() if later.get(key) != value}
            keys |= differing - identities.keys()
    if keys:
        rules = {key: SAME_CHECKS if key == VALIDATE_EVERY else RULE for key in sorted(keys)}
        remedy = "run one sweep for each value"
        raise ConfigError([Problem(key, None, rule, remedy) for key, rule in rules.items()])
