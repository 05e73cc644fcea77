"""Watcher of a mindrlhf run: logs become metrics.jsonl and completions.jsonl while the run writes them."""

import json
import time
from pathlib import Path
from typing import Any

from stages.base.follow import Follower
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.logs import OF_THE_UPDATE, LogReader
from stages.engines.outside import Report, Row, StepWatcher

PATIENCE_S = 30.0
"""Seconds that a step waits for the last stage's loss, whose log may be on another machine."""


class Watcher(StepWatcher):
    """Follows worker 0's log; with a pipeline also the last worker's, the only one with the loss."""

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        train = job.layout.train
        super().__init__(logs / "worker_0.log", work, job.engine, report, completions=True)
        self.logged_completions = job.train.logged_completions
        self.first, self.last_stage = LogReader(train.cards), LogReader(train.cards)
        last_log = logs / f"worker_{train.cards - 1}.log"
        self._last_log = Follower(last_log) if train.pipeline_stage > 1 else None
        self._waiting: list[tuple[float, Row]] = []
        self._losses: dict[float, Row] = {}

    def poll(self, ended: bool = False) -> None:
        """Read new lines; when the run has `ended`, steps no longer wait for the last stage's loss."""
        for line in self._log.lines():
            if row := self.first.read(line):
                self._waiting.append((time.monotonic(), row))
        if self._last_log is not None:
            self._read_losses(self._last_log)
        while self._waiting:
            arrived, row = self._waiting[0]
            loss = self._losses.pop(row["step"], None)
            lags = self._last_log is not None and self._last_log.path.exists() and loss is None
            if lags and not ended and time.monotonic() - arrived < PATIENCE_S:
                return  # the last stage logs the step a moment later
            self._waiting.pop(0)
            self._write(
                {**row, **{name: loss[name] for name in OF_THE_UPDATE & loss.keys()}} if loss else row
            )

    def _read_losses(self, log: Follower) -> None:
        new = log.lines()
        if log.renewed:
            self._losses.clear()
        for line in new:
            if row := self.last_stage.read(line):
                self._losses[row["step"]] = row

    def _write(self, row: Row) -> None:
        saved = [
            completion
            for step, path in self.first.completions
            for completion in read_completions(path, step, self.logged_completions)
        ]
        self.first.completions.clear()
        self.add(row, self.first.total, saved)


def read_completions(path: Path, step: int, count: int) -> list[dict[str, Any]]:
    """Read the first rows of a prompt_completions_step_N.json with grpoflow's names; none on error."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))[:count]
        return [
            {
                "step": step,
                "prompt": row["question"],
                "completion": row["answer"],
                "solution": row["solution"].strip("$"),
                "reward": row["reward"],
                "length": row["completion_length"],
            }
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
