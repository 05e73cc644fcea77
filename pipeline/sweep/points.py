"""Points of a sweep, and their output: a terminal table, a CSV file, and the merged graph of a plan."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console

from pipeline.plan import explain
from pipeline.plan.graph import Plan
from pipeline.store.store import Key, Store
from pipeline.terminal import Table, as_json, elapsed
from stages.base.redact import redact, redacted

ACCURACIES = ("accuracy_sft", "accuracy_grpo", "gain")
SHOWN = 200
"""Largest number of artifacts that a plan lists one by one; with more it shows counts per stage."""


@dataclass
class Point:
    """One point of a sweep."""

    number: int
    overrides: list[str]
    state: str = "pending"
    """pending, finished, failed, or invalid (its configuration is refused; it is left out)."""
    message: str = ""
    """Reason why it is invalid or failed."""
    run: str | None = None
    """Id of its run."""
    result: dict[str, Any] = field(default_factory=dict)
    """Result of the evaluation."""
    artifacts: dict[str, str] = field(default_factory=dict)
    """Stage -> STAGE/FIRST-16-DIGITS."""


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
        for override in point.overrides:
            key, _, value = override.partition("=")
            values.setdefault(key, set()).add(value)
    return [key for key, seen in values.items() if len(seen) > 1]


def describe(point: Point, keys: Sequence[str]) -> str:
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
        chosen = dict(override.partition("=")[::2] for override in point.overrides)
        row = [point.number, point.state, *(chosen.get(key, "") for key in keys)]
        writer.writerow(
            [*row, *(point.result.get(key, "") for key in results), point.run or "", point.message]
        )
    return text.getvalue()


def show(points: Sequence[Point], out: Console) -> None:
    """Print the points with their differing keys and accuracies, the best first."""
    keys = varied(points)
    shown = Table()
    for column in ("point", *keys, "before grpo", "after grpo", "gain", "state"):
        shown.add_column(column)
    for point in sorted(points, key=lambda point: -accuracy(point.result)):
        chosen = dict(override.partition("=")[::2] for override in point.overrides)
        figures = [f"{point.result[key]:.3f}" if key in point.result else "" for key in ACCURACIES]
        state = point.state if point.state == "finished" else f"{point.state}: {point.message}"
        shown.add_row(str(point.number), *(chosen.get(key, "") for key in keys), *figures, state)
    out.print(shown)


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


def show_merged(points: Sequence[Point], plans: dict[int, Plan], store: Store | None, out: Console) -> None:
    """Print the merged graph: each distinct artifact once, with its points and its expected duration."""
    sharing: dict[Key, list[int]] = {}
    for point in points:
        if point.number in plans:
            for spec in plans[point.number].requested:
                sharing.setdefault(spec.key, []).append(point.number)
    if store is None:  # every point is invalid
        return
    show_rows = _each_artifact if len(sharing) <= SHOWN else _each_stage
    left, costs = show_rows(sharing, plans, store, out)
    known = [cost for cost in costs if cost is not None]
    separate = sum(len(sharing[key]) for key in left)
    out.print(f"{len(left)} stages to run; {separate} if each point ran alone")
    if left:
        unknown = len(left) - len(known)
        more = f", and {unknown} stages that have never run" if unknown else ""
        out.print(f"by their last durations: {elapsed(sum(known))}{more}")


Costs = tuple[list[Key], list[float | None]]
"""Artifacts to build, and for each the duration in seconds of the most similar earlier artifact, or None."""


def _each_artifact(
    sharing: Mapping[Key, Sequence[int]], plans: Mapping[int, Plan], store: Store, out: Console
) -> Costs:
    """Print one row per artifact; return the artifacts to build with their durations."""
    rows: dict[Key, explain.Row] = {}
    for plan in plans.values():
        for spec, row in zip(plan.requested, explain.explain(plan, store), strict=True):
            rows.setdefault(spec.key, row)
    shown = _table(
        f"{len(plans)} points, one graph", "stage", "state", "points", "cards", "last took", "reason"
    )
    for key, row in rows.items():
        numbers = ", ".join(map(str, sharing[key]))
        duration = _duration(row.last_duration_s)
        shown.add_row(row.stage, row.state, numbers, str(row.workers), duration, row.reason)
    out.print(shown)
    left = [key for key, row in rows.items() if row.state != "CACHED"]
    return left, [rows[key].last_duration_s for key in left]


def _each_stage(
    sharing: Mapping[Key, Sequence[int]], plans: Mapping[int, Plan], store: Store, out: Console
) -> Costs:
    """Print one row per stage, with counts of artifacts and the duration of the first point's artifact."""
    typical: dict[str, explain.Row] = {}
    for plan in plans.values():
        if not {spec.name for spec in plan.requested} <= typical.keys():
            typical = {row.stage: row for row in explain.explain(plan, store)} | typical
    rebuilt = {name for plan in plans.values() for name in plan.rebuilt}
    counts: dict[str, Counter[str]] = {}
    left = []
    for key in sharing:
        state = "CACHED" if key.stage not in rebuilt and store.problem(key) is None else "RUN"
        counts.setdefault(key.stage, Counter())[state] += 1
        if state == "RUN":
            left.append(key)
    shown = _table(f"{len(plans)} points, one graph", "stage", "to run", "cached", "cards", "one takes")
    for stage, count in counts.items():
        row = typical[stage]
        shown.add_row(
            stage, str(count["RUN"]), str(count["CACHED"]), str(row.workers), _duration(row.last_duration_s)
        )
    out.print(shown)
    return left, [typical[key.stage].last_duration_s for key in left]


def _table(title: str, *columns: str) -> Table:
    shown = Table(title=title, title_justify="left")
    for column in columns:
        shown.add_column(column)
    return shown


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else elapsed(seconds)
