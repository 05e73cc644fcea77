"""Output at the end of a run: a table of stages and the result line."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.plan.graph import Plan, downstream
from pipeline.store.store import Store
from pipeline.terminal import Column, Table, say
from stages.report.headline import NOISE, gain_margin
from stages.report.text import duration
from stages.tokenize import counts


def results(plan: Plan, store: Store) -> dict[str, Any]:
    """Return result.json of the evaluate stage; empty if the run does not include it."""
    if all(spec.name != "evaluate" for spec in plan.requested):
        return {}
    file = store.path(plan.spec("evaluate").key) / "result.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def show(
    plan: Plan, store: Store, states: Mapping[str, str], values: Mapping[str, Any], console: Console
) -> None:
    """Print the stages with their states and durations, and the held-out accuracies of a result."""
    table = Table(["stage", "state", "took", Column("artifact", "text")], "stages")
    for spec in plan.requested:
        state, elapsed = states[spec.name], ""
        if state != "remote":
            manifest = store.manifest(spec.key)
            elapsed = duration(manifest.ended - manifest.started)
        table.add(spec.name, state, elapsed, str(spec.key))
    for stage, why in plan.skipped.items() if not plan.target.is_part else ():
        table.add(stage, "skipped", "", why)
    console.print(table)
    if any(spec.name == "tokenize" for spec in plan.requested):
        print_data(store.path(plan.spec("tokenize").key), console)
    if not values:
        return
    say(f"greedy accuracy on {values['prompts']} held-out prompts")
    first = "before grpo" if "sft" in plan.skipped else "after sft"
    accuracy = Table([Column(name, "number") for name in (first, "after grpo", "gain")])
    half = gain_margin(values)
    gain = f"{values['gain']:+.3f}" + ("" if half is None else f" ± {half:.3f}")
    accuracy.add(f"{values['accuracy_sft']:.3f}", f"{values['accuracy_grpo']:.3f}", gain)
    console.print(accuracy)
    if half is not None and abs(values["gain"]) <= half:
        say(f"the gain is {NOISE} (95 % interval)")


def print_data(tokenized: Path, console: Console) -> None:
    """Print how many rows of each file were read, used, left out and cut."""
    rows = list(counts.table(counts.read_result(tokenized)))
    if not rows:
        return
    reasons = ("left out", "cut")  # with a number before each reason
    columns = [Column(name, "text" if name in reasons else "number") for name in counts.COLUMNS[1:]]
    table = Table(["file", *columns], "data")
    for row in rows:
        table.add(*row)
    console.print(table)


def last_line(plan: Plan, store: Store, values: Mapping[str, Any], run: str) -> str:
    """Return the line `result accuracy_sft=… accuracy_grpo=… gain=… run=… report=…`.

    Accuracies that were not measured are left out. For a part of the graph the line ends with the directories
    of the requested stages, and begins with `done` if grpo was not evaluated.
    """
    target = plan.target
    requested = [spec for spec in plan.requested if spec.name in target.only] or [plan.requested[-1]]
    paths = {spec.name: store.path(spec.key) for spec in requested}
    outputs = [f"{name}={path / 'index.html' if name == 'report' else path}" for name, path in paths.items()]
    measured = [f"{name}={values[name]:.4f}" for name in ("accuracy_sft", "accuracy_grpo", "gain") if values]
    word = "done" if target.is_part and not values else "result"
    return " ".join([word, *measured, f"run={run}", *outputs])


def outdated_note(plan: Plan, store: Store, replaced: Collection[str]) -> str | None:
    """Return which stages still have artifacts that were built from replaced ones; None if there are none."""
    names = downstream(plan.target.force, plan.graph) - set(replaced)
    outdated = [spec.name for spec in plan.specs if spec.name in names and store.problem(spec.key) is None]
    if not outdated:
        return None
    text = f"{', '.join(outdated)}: built from the replaced artifact of {', '.join(plan.target.force)}"
    return f"{text}; rebuild with --force {outdated[0]}"
