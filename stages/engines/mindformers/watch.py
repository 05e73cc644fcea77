"""A run that is under way: its log turned into metrics.jsonl while it writes."""

from __future__ import annotations

import time
from pathlib import Path

from stages.base.follow import Follower, Silence
from stages.engines.mindformers.job import Job
from stages.engines.mindformers.logs import LogReader
from stages.engines.outside import Tell
from stages.grpo.metrics import StepLog


class Watcher:
    """Follows the last worker's log: with a pipeline, only the last stage knows the loss."""

    def __init__(self, logs: Path, work: Path, job: Job, tell: Tell) -> None:
        """Begin.

        Args:
            logs: directory in which this attempt's worker_K.log appear.
            work: where metrics.jsonl grows; what later steps left there is dropped.
            job: the run's settings.
            tell: called with step, total and a message after each step.
        """
        self.work, self.tell = work, tell
        self.reader = LogReader(job.mindformers.batch_size * job.seq_length)
        self.silent_s, self.silence_timeout_s = Silence(logs).seconds, job.mindformers.silence_timeout_s
        self._log = Follower(logs / f"worker_{job.layout.cards - 1}.log")
        self._metrics: StepLog | None = None

    def poll(self, ended: bool = False) -> None:
        """Read what is new; cheap enough for ten calls a second."""
        for line in self._log.lines():
            row = self.reader.read(line)
            if row is None:
                continue
            step = int(row["step"])
            if self._metrics is None:
                self._metrics = StepLog(self.work / "metrics.jsonl", step - 1)
            self._metrics.append([{**row, "step": step, "time_s": time.time()}])
            self.tell(step, max(self.reader.total, step), f"loss {row['loss']:.3f}")
