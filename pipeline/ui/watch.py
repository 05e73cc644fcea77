"""`grpoflow watch`: the state of a run, read from its files in the store."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline.errors import StoreError
from pipeline.plan.explain import median_pace
from pipeline.run.detached import of_sweep
from pipeline.run.progress import (
    PLAIN_EVERY_S,
    RECENT_STEPS,
    Remaining,
    count,
    left_of_stage,
    remaining,
    tail,
)
from pipeline.store import history
from pipeline.store.attempt import find_all, is_held
from pipeline.store.history import Record
from pipeline.store.store import MANIFEST, Manifest
from pipeline.terminal import Column, Table, terminal_width, wrapped
from stages.report.text import duration, figure, number, percent

REFRESH_S = 1.0
COLUMNS = ("stage", "state", "took", "step", "reward", "accuracy", "tokens/s", "time left", "")


@dataclass(frozen=True)
class StageStatus:
    """One stage of a run as texts, in the order of COLUMNS; empty if unknown."""

    stage: str
    state: str
    """done, cached (made before this run), running, failed, interrupted, waiting, or not run."""
    took: str = ""
    step: str = ""
    reward: str = ""
    accuracy: str = ""
    speed: str = ""
    left: str = ""
    message: str = ""
    left_s: float | None = None
    """`left` as a number."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts in the order of COLUMNS."""
        return (
            self.stage, self.state, self.took, self.step, self.reward, self.accuracy, self.speed, self.left,
            self.message,
        )  # fmt: skip


def left_of_run(record: Record, stages: Sequence[StageStatus]) -> Remaining | None:
    """Return the time left of a running run; None if nothing is known or it has ended."""
    if record.state != "running":
        return None
    running = {row.stage: row.left_s for row in stages if row.state == "running"}
    waiting = [row.stage for row in stages if row.state == "waiting"]
    return remaining(record.expected_s, running, waiting)


def choose(store: Path, run_id: str | None) -> Record:
    """Return the run with this id; without one the newest live run, else the newest.

    The id of a sweep stands for its runs. They are all live from its start, so runs with a running stage are
    preferred.
    Raise ConfigError if no run or several runs match.
    """
    runs = list(history.runs(store).values())
    points = of_sweep(runs, run_id or "")
    if run_id is not None and not points:
        return history.find(store, run_id)
    live = [run for run in points or runs if run.state == "running"]
    busy = [run for run in live if any(row.state == "running" for row in rows(store, run))]
    return (busy or live or points or [history.find(store, "last")])[-1]


def follow(root: Path, record: Record, console: Console) -> Record:
    """Show a run until it ends: in a terminal a refreshed table, else lines about its running stages."""
    printed = -PLAIN_EVERY_S
    with Live(console=console, auto_refresh=False) if sys.stdout.isatty() else nullcontext() as live:
        while True:
            record = history.find(root, record.id)
            stages = rows(root, record)
            if live is not None:
                live.update(view(record, stages), refresh=True)
            elif record.state != "running":
                console.print(view(record, stages))
            elif time.monotonic() - printed >= PLAIN_EVERY_S:
                printed = time.monotonic()
                for row in stages:
                    if row.state == "running":
                        print(sentence(row), flush=True)
            if record.state != "running":
                return record
            time.sleep(REFRESH_S)


def view(record: Record, stages: Sequence[StageStatus]) -> Group:
    """Return the run's headline and the table of its stages."""
    took = f" for {duration(time.time() - record.started)}" if record.state == "running" else ""
    left = left_of_run(record, stages)
    took += f", {left}" if left is not None else ""
    head = f"run {record.id}{f' ({record.name})' if record.name else ''}: {record.state}{took}"
    message = f"; {record.failed_stage}: {record.message}" if record.failed_stage else ""
    table = Table([name or Column(name, "text") for name in COLUMNS], borders=False)
    for row in stages:
        table.add(*row.cells)
    lines = wrapped(head + message, terminal_width(), "  ")
    return Group(*(Text(line, no_wrap=True, overflow="ignore") for line in lines), table)


def sentence(row: StageStatus) -> str:
    """Describe a running stage in one line."""
    values = {"{}": row.step, "reward {}": row.reward, "accuracy {}": row.accuracy}
    values |= {"{} tokens/s": row.speed, "{} left": row.left}
    parts = [text.format(value) for text, value in values.items() if value]
    return f"{row.stage}: {', '.join(parts) or f'running for {row.took}'}"


def rows(store: Path, record: Record) -> list[StageStatus]:
    """Return the stages of a run, in order, with their current state in the store."""
    return [_row(store, record, stage, artifact) for stage, artifact in record.artifacts.items()]


def _row(store: Path, record: Record, stage: str, artifact: str) -> StageStatus:
    complete = store / artifact
    with suppress(StoreError):
        manifest = Manifest.read(complete / MANIFEST)
        state = "done" if manifest.ended >= record.started else "cached"
        metrics = tail(complete / "metrics.jsonl")
        return StageStatus(
            stage, state, duration(manifest.ended - manifest.started), **_latest_figures(metrics)
        )
    work = next(filter(is_held, find_all(store, artifact)), None)
    if record.state != "running" or work is None:
        waiting = "waiting" if record.state == "running" else "not run"
        return StageStatus(stage, record.state if stage == record.failed_stage else waiting)
    log = store / ".logs" / work.name
    began = (log / "spec.json").stat().st_mtime if (log / "spec.json").exists() else time.time()
    progress, metrics = tail(log / "progress.jsonl"), tail(work / "metrics.jsonl")
    latest = _latest_step(progress, metrics)
    pace_s = median_pace(_points(metrics if len(metrics) > 1 else progress))
    left_s = left_of_stage(latest, pace_s, record.expected_s.get(stage), time.time() - began)
    return StageStatus(
        stage,
        "running",
        duration(time.time() - began),
        step=count(latest) if latest else "",
        left="" if left_s is None else duration(left_s),
        message=str(progress[-1].get("message", "")) if progress and not metrics else "",
        left_s=left_s,
        **_latest_figures(metrics),
    )


def _latest_figures(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return reward and speed of the last step, and the last accuracy (sft measures it only at checks)."""
    last = metrics[-1] if metrics else {}
    accuracies = [row.get("accuracy", row.get("accuracy_check")) for row in metrics]
    accuracy = next((value for value in reversed(accuracies) if value is not None), None)
    texts = {"reward": figure(last.get("reward")), "accuracy": percent(accuracy)}
    texts["speed"] = figure(last.get("tokens_per_s"))
    return {name: "" if text == "–" else text for name, text in texts.items()}


def _latest_step(
    progress: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the last progress line, with the step of `metrics` if later (sft reports only its checks)."""
    line = dict(progress[-1]) if progress else {}
    step = number(metrics[-1].get("step")) if metrics else None
    if step is not None and (not line or (line.get("unit") == "step" and step > (number(line["step"]) or 0))):
        line.update(step=step, unit="steps", time_s=metrics[-1].get("time_s"))
    return line


def _points(steps: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return the latest steps with their times."""
    recent = [(number(row.get("step")), number(row.get("time_s"))) for row in steps[-RECENT_STEPS - 1 :]]
    return [(step, when) for step, when in recent if step is not None and when is not None]
