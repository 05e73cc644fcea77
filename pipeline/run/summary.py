"""What a run prints at its end: a table for people and one line for programs."""

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from pipeline.plan.graph import Plan
from pipeline.store.store import Manifest, Store
from pipeline.terminal import Table, elapsed


def results(plan: Plan, store: Store) -> dict[str, Any]:
    """The evaluation's result.json of a finished run; empty where there is none."""
    if all(spec.name != "evaluate" for spec in plan.asked):
        return {}
    file = store.path(plan.spec("evaluate").key) / "result.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def show(
    plan: Plan,
    store: Store,
    states: Mapping[str, str],
    console: Console,
    elsewhere: Mapping[str, Manifest],
) -> None:
    """Print stages with their durations, and held-out accuracies."""
    table = Table(title="stages", title_justify="left")
    for column in ("stage", "state", "took", "artifact"):
        table.add_column(column)
    for spec in plan.asked:
        away = states[spec.name] == "remote"
        manifest = elsewhere[spec.name] if away else store.manifest(spec.key)
        table.add_row(spec.name, states[spec.name], elapsed(manifest.ended - manifest.started), str(spec.key))
    for stage, why in plan.skipped.items() if not plan.target.is_part else ():
        table.add_row(stage, "skipped", "", why)
    console.print(table)
    values = results(plan, store)
    if not values:
        return
    console.print(f"greedy accuracy on {values['prompts']} held-out prompts")
    accuracy = Table()
    for column in ("before grpo" if "sft" in plan.skipped else "after sft", "after grpo", "gain"):
        accuracy.add_column(column, justify="right")
    accuracy.add_row(
        f"{values['accuracy_sft']:.3f}", f"{values['accuracy_grpo']:.3f}", f"{values['gain']:+.3f}"
    )
    console.print(accuracy)


def last_line(plan: Plan, store: Store, run: str) -> str:
    """`result accuracy_sft=… accuracy_grpo=… gain=… run=… report=…`, without those that were not measured.

    Of a run with a target, the directories of what it was asked for stand last, and it begins with `done`
    where grpo is not evaluated.
    """
    values, target = results(plan, store), plan.target
    wanted = [spec for spec in plan.asked if spec.name in target.only] or [plan.asked[-1]]
    places = {spec.name: store.path(spec.key) for spec in wanted}
    made = [f"{name}={path / 'index.html' if name == 'report' else path}" for name, path in places.items()]
    measured = [f"{name}={values[name]:.4f}" for name in ("accuracy_sft", "accuracy_grpo", "gain") if values]
    word = "done" if target.is_part and not values else "result"
    return " ".join([word, *measured, f"run={run}", *made])
