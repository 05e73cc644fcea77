"""What a run prints at its end: a table for people and one line for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.graph import Plan
from pipeline.progress import elapsed
from pipeline.store import Store


def results(plan: Plan, store: Store) -> dict[str, Any]:
    """The evaluation's result.json of a finished run; empty where there is none."""
    if all(spec.name != "evaluate" for spec in plan.specs):
        return {}
    file = store.path(plan.spec("evaluate").key) / "result.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def show(plan: Plan, store: Store, states: Mapping[str, str], console: Console) -> None:
    """Print stages with their durations, and held-out accuracies."""
    table = Table(title="stages", title_justify="left")
    for column in ("stage", "state", "took", "artifact"):
        table.add_column(column)
    for spec in plan.specs:
        manifest = store.manifest(spec.key)
        table.add_row(spec.name, states[spec.name], elapsed(manifest.ended - manifest.started), str(spec.key))
    for stage, why in plan.skipped.items():
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


def result_line(plan: Plan, store: Store, run: str) -> str:
    """`result accuracy_sft=… accuracy_grpo=… gain=… run=… report=…`, without those that were not measured.

    Of a run that stops after another stage, that stage's name and its artifact's directory stand last.
    """
    values, last = results(plan, store), plan.specs[-1]
    made = store.path(last.key) / "index.html" if last.name == "report" else store.path(last.key)
    measured = [f"{name}={values[name]:.4f}" for name in ("accuracy_sft", "accuracy_grpo", "gain") if values]
    return " ".join(["result", *measured, f"run={run}", f"{last.name}={made}"])
