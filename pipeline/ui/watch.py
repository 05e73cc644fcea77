"""`grpoflow watch`: a run seen from another terminal, by what it writes into the store."""

import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live

from pipeline.errors import StoreError
from pipeline.run.progress import PLAIN_EVERY_S, count, tail
from pipeline.store import history
from pipeline.store.attempt import shows_life
from pipeline.store.history import Record
from pipeline.store.store import MANIFEST, Manifest
from pipeline.terminal import Table, elapsed
from stages.report.text import figure, neutral, number, percent

EVERY_S = 1.0
RECENT = 20
"""Steps by which the time left is estimated."""
COLUMNS = ("stage", "state", "took", "step", "reward", "accuracy", "tokens/s", "time left", "")


@dataclass(frozen=True)
class Row:
    """One stage of a run, as texts; empty where there is nothing to tell."""

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

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        return (
            self.stage, self.state, self.took, self.step, self.reward, self.accuracy, self.speed,
            self.left, self.message,
        )  # fmt: skip


def choose(store: Path, wanted: str | None) -> Record:
    """The run that is asked for; without a wish the newest living one, else the newest.

    Of a sweep's runs, which all live from its start, those that a stage is running for come first.

    Raises:
        ConfigError: none or several fit.
    """
    if wanted is None:
        living = [run for run in history.runs(store).values() if run.state == "running"]
        busy = [run for run in living if _is_busy(store, run)]
        return (busy or living or [history.find(store, "last")])[-1]
    return history.find(store, wanted)


def follow_live(root: Path, record: Record, console: Console) -> Record:
    """The run's table, drawn again and again until it ends."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            record = history.find(root, record.id)
            live.update(view(record, rows(root, record)), refresh=True)
            if record.state != "running":
                return record
            time.sleep(EVERY_S)


def follow_plainly(root: Path, record: Record, console: Console) -> Record:
    """A line per running stage now and then, and the table at the end."""
    last = -PLAIN_EVERY_S
    while record.state == "running":
        if time.monotonic() - last >= PLAIN_EVERY_S:
            last = time.monotonic()
            for row in rows(root, record):
                if row.state == "running":
                    console.print(sentence(row), soft_wrap=True)
            sys.stdout.flush()
        time.sleep(EVERY_S)
        record = history.find(root, record.id)
    console.print(view(record, rows(root, record)))
    return record


def view(record: Record, stages: Sequence[Row]) -> Group:
    """The run's headline and its stages."""
    ended = record.ended if record.ended is not None else time.time()
    took = f" for {elapsed(ended - record.started)}" if record.state == "running" else ""
    head = f"run {record.id}{f' ({record.name})' if record.name else ''}: {record.state}{took}"
    message = f"; {record.failed_stage}: {record.message}" if record.failed_stage else ""
    table = Table(*COLUMNS, box=None, padding=(0, 2), collapse_padding=True, pad_edge=False, header_style="")
    for row in stages:
        table.add_row(*row.cells)
    return Group(neutral(head + message), table)


def sentence(row: Row) -> str:
    """A running stage in one line."""
    named = (("", row.step), ("reward ", row.reward), ("accuracy ", row.accuracy))
    parts = [f"{name}{value}" for name, value in named if value]
    parts += [f"{row.speed} tokens/s"] if row.speed else []
    parts += [f"{row.left} left"] if row.left else []
    return f"{row.stage}: {', '.join(parts) or f'running for {row.took}'}"


def rows(store: Path, record: Record) -> list[Row]:
    """The stages of a run, in order, by what stands in the store now."""
    return [_row(store, record, stage, artifact) for stage, artifact in record.artifacts.items()]


def _row(store: Path, record: Record, stage: str, artifact: str) -> Row:
    whole = store / artifact
    with contextlib.suppress(StoreError):
        manifest = Manifest.read(whole / MANIFEST)
        state = "done" if manifest.ended >= record.started else "cached"
        figures = _figures(tail(whole / "metrics.jsonl"))
        return Row(stage, state, elapsed(manifest.ended - manifest.started), **figures)
    place = seat(store, artifact, record.started)
    if record.state != "running" or place is None:
        waiting = "waiting" if record.state == "running" else "not run"
        return Row(stage, record.state if stage == record.failed_stage else waiting)
    log = store / ".logs" / place.name
    began = (log / "spec.json").stat().st_mtime if (log / "spec.json").exists() else time.time()
    progress, metrics = tail(log / "progress.jsonl"), tail(place / "metrics.jsonl")
    latest = _latest(progress, metrics)
    return Row(
        stage,
        "running",
        elapsed(time.time() - began),
        step=count(latest) if latest else "",
        left=_left(latest, metrics if len(metrics) > 1 else progress),
        message=neutral(str(progress[-1].get("message", ""))) if progress and not metrics else "",
        **_figures(metrics),
    )


def _is_busy(store: Path, record: Record) -> bool:
    """Whether some stage of it runs now."""
    missing = [name for name in record.artifacts.values() if not (store / name).exists()]
    return any(seat(store, name, record.started) is not None for name in missing)


def seat(store: Path, artifact: str, since: float) -> Path | None:
    """Work directory of the attempt that goes on now: its owner has shown life since the run began."""
    flat = artifact.replace("/", "-")
    signs = []
    for owner in (*store.glob(f".work/{flat}/owner-*"), *store.glob(f".work/{flat}+*/owner-*")):
        with contextlib.suppress(FileNotFoundError):  # given up meanwhile
            if shows_life(owner, since):
                signs.append((owner.lstat().st_mtime, owner.parent))
    return max(signs)[1] if signs else None


def _figures(metrics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Reward and speed of the last step, and the latest accuracy (sft's is that of its checks)."""
    row = metrics[-1] if metrics else {}
    accuracies = [row.get("accuracy", row.get("accuracy_check")) for row in metrics]
    accuracy = next((value for value in reversed(accuracies) if value is not None), None)
    speed, reward = row.get("tokens_per_s"), row.get("reward")
    texts = {"reward": figure(reward), "accuracy": percent(accuracy), "speed": figure(speed)}
    return {name: "" if text == "–" else text for name, text in texts.items()}


def _latest(progress: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last progress line, with the step of metrics where that is further (sft tells of checks only)."""
    line = dict(progress[-1]) if progress else {}
    step = number(metrics[-1].get("step")) if metrics else None
    if step is not None and (not line or (line.get("unit") == "step" and step > (number(line["step"]) or 0))):
        line.update(step=step, unit="step", time_s=metrics[-1].get("time_s"))
    return line


def _left(latest: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> str:
    """Time to the stage's last step by the usual pace: the median bears checkpoints and restarts."""
    known = [(number(row.get("step")), number(row.get("time_s"))) for row in steps[-RECENT - 1 :]]
    recent = [(step, when) for step, when in known if step is not None and when is not None]
    paces = [(t2 - t1) / (s2 - s1) for (s1, t1), (s2, t2) in itertools.pairwise(recent) if s2 > s1]
    step, total, when = (number(latest.get(key)) for key in ("step", "total", "time_s"))
    if not paces or step is None or total is None or when is None:
        return ""
    return elapsed((total - step) * statistics.median(paces) - (time.time() - when))
