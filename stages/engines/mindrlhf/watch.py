"""A run that is under way: its logs turned into metrics.jsonl and completions.jsonl while it writes them."""

import json
import time
from pathlib import Path
from typing import Any

from stages.base.follow import Follower
from stages.engines import outside
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.logs import OF_THE_UPDATE, LogReader
from stages.engines.outside import Report, Row, Steps

PATIENCE_S = 30.0
"""Seconds that a step waits for the last stage's loss; that log may lie on another machine."""


class Watcher(outside.Watcher):
    """Follows worker 0's log; with a pipeline the last worker's too: only the last stage knows the loss."""

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        """Begin."""
        train = job.layout.train
        super().__init__(logs, "worker_0.log", job.engine.silence_timeout_s, report)
        self.logged, self._steps = job.train.logged_completions, Steps(work, "completions.jsonl")
        self.reader, self.last = LogReader(train.cards), LogReader(train.cards)
        last_log = logs / f"worker_{train.cards - 1}.log"
        self._last_log = Follower(last_log) if train.pipeline_stage > 1 else None
        self._waiting: list[tuple[float, Row]] = []
        self._losses: dict[float, Row] = {}

    def poll(self, ended: bool = False) -> None:
        """Read what is new; cheap enough for ten calls a second.

        Args:
            ended: nothing more will come; rows that wait for the last stage's loss go without it.
        """
        for line in self._log.lines():
            self._waiting += [(time.monotonic(), row) for row in self.reader.read(line)]
        new = self._last_log.lines() if self._last_log else []
        if self._last_log and self._last_log.renewed:
            self._losses.clear()
        for line in new:
            self._losses.update({row["step"]: row for row in self.last.read(line)})
        while self._waiting:
            arrived, row = self._waiting[0]
            loss = self._losses.pop(row["step"], None)
            lags = self._last_log is not None and self._last_log.path.exists() and loss is None
            if lags and not ended and time.monotonic() - arrived < PATIENCE_S:
                return  # the last stage logs the step a moment later
            self._waiting.pop(0)
            self._step({**row, **{name: loss[name] for name in OF_THE_UPDATE & loss.keys()}} if loss else row)

    def _step(self, row: Row) -> None:
        drawn = [
            entry
            for number, path in self.reader.completions
            for entry in completions(path, number, self.logged)
        ]
        self.reader.completions.clear()
        step = self._steps.write(row, drawn)
        reward, length = row.get("reward", float("nan")), row.get("completion_length", float("nan"))
        self.report(step, max(self.reader.total, step), f"reward {reward:.3f}, length {length:.1f}")


def completions(path: Path, step: int, count: int) -> list[dict[str, Any]]:
    """Read the first rows of a prompt_completions_step_N.json, with our key names; none on error."""
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
