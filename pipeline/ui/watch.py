"""`grpoflow watch`: the state of a run, read from its files in the store."""

import itertools
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live

from pipeline.errors import StoreError
from pipeline.run.progress import PLAIN_EVERY_S, count, tail
from pipeline.store import history
from pipeline.store.attempt import find_all, is_held
from pipeline.store.history import Record
from pipeline.store.store import MANIFEST, Manifest
from pipeline.terminal import Table
from stages.report.text import duration, figure, number, percent

REFRESH_S = 1.0
RECENT_STEPS = 20
"""Number of latest steps from which the remaining time is estimated."""
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


def choose(store: Path, run_id: str | None) -> Record:
    """Return the run with this id; without one the newest live run, else the newest run.

    The runs of a sweep are all live from its start, so runs with a running stage are preferred.
    Raise ConfigError if no run or several runs match.
    """
    if run_id is not None:
        return history.find(store, run_id)
    live = [run for run in history.runs(store).values() if run.state == "running"]
    busy = [run for run in live if any(row.state == "running" for row in rows(store, run))]
    return (busy or live or [history.find(store, "last")])[-1]


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
    head = f"run {record.id}{f' ({record.name})' if record.name else ''}: {record.state}{took}"
    message = f"; {record.failed_stage}: {record.message}" if record.failed_stage else ""
    table = Table(*COLUMNS, box=None, padding=(0, 2), collapse_padding=True, pad_edge=False, header_style="")
    for row in stages:
        table.add_row(*astuple(row))
    return Group(head + message, table)


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
    return StageStatus(
        stage,
        "running",
        duration(time.time() - began),
        step=count(latest) if latest else "",
        left=_time_left(latest, metrics if len(metrics) > 1 else progress),
        message=str(progress[-1].get("message", "")) if progress and not metrics else "",
        **_latest_figures(metrics),
    )


def _latest_figures(metrics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
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
        line.update(step=step, unit="step", time_s=metrics[-1].get("time_s"))
    return line


def _time_left(latest: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> str:
    """Estimate the time to the last step from the median pace, which ignores checkpoints and restarts."""
    recent = [(number(row.get("step")), number(row.get("time_s"))) for row in steps[-RECENT_STEPS - 1 :]]
    known = [(step, when) for step, when in recent if step is not None and when is not None]
    paces = [(t2 - t1) / (s2 - s1) for (s1, t1), (s2, t2) in itertools.pairwise(known) if s2 > s1]
    step, total, when = (number(latest.get(key)) for key in ("step", "total", "time_s"))
    if not paces or step is None or total is None or when is None:
        return ""
    return duration(max(0.0, (total - step) * statistics.median(paces) - (time.time() - when)))
