"""Watcher of a mindrlhf run: logs become metrics.jsonl and completions.jsonl while the run writes them."""

import json
from pathlib import Path
from typing import Any

from stages.base.follow import Follower
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.logs import LogReader
from stages.engines.outside import Report, StepWatcher


class Watcher(StepWatcher):
    """Reads steps from a worker of the last pipeline stage, the only one with the loss.

    All workers log the same rewards; worker 0 logs the files with completions.
    """

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        train = job.layout.train
        worker = train.cards - 1 if train.pipeline_stage > 1 else 0
        super().__init__(logs / f"worker_{worker}.log", work, job.engine, report, completions=True)
        self.logged_completions = job.train.logged_completions
        self.steps, self.saved = LogReader(train.cards), LogReader(train.cards)
        self._first_log = Follower(logs / "worker_0.log")

    def poll(self, ended: bool = False) -> None:
        """Read new lines; called ten times a second, and with `ended` when the run has ended."""
        for line in self._first_log.lines():
            self.saved.read(line)
        super().poll(ended)

    def read(self, line: str) -> None:
        """Process one line."""
        row = self.steps.read(line)
        if row is None:
            return
        completions = [
            completion
            for step, path in self.saved.completions
            for completion in read_completions(path, step, self.logged_completions)
        ]
        self.saved.completions.clear()
        self.add(row, self.steps.total, completions)


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
