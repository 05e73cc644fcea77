"""A run that is under way: its log turned into metrics.jsonl while it writes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from stages.base.follow import Follower, Silence
from stages.engines.mindrlhf.one_stage.job import Job
from stages.engines.mindrlhf.one_stage.logs import LogReader
from stages.engines.outside import START_FILE, Tell
from stages.grpo.metrics import StepLog


class Watcher:
    """Follows the last worker's log: all generate and score the same, only the last stage knows the loss."""

    def __init__(self, logs: Path, work: Path, job: Job, tell: Tell) -> None:
        """Begin.

        Args:
            logs: directory in which this attempt's worker_K.log appear.
            work: where metrics.jsonl grows; what an earlier attempt left there is dropped.
            job: the run's settings.
            tell: called with step, total and a message after each step.
        """
        self.tell, self.reader = tell, LogReader(job.window)
        self.silent_s, self.silence_timeout_s = Silence(logs).seconds, job.engine.silence_timeout_s
        self.total = json.loads((work / START_FILE).read_text(encoding="utf-8"))["steps"]
        self._log = Follower(logs / f"worker_{job.layout.train.cards - 1}.log")
        self._metrics = StepLog(work / "metrics.jsonl", 0)

    def poll(self, ended: bool = False) -> None:
        """Read what is new; cheap enough for ten calls a second."""
        for line in self._log.lines():
            row = self.reader.read(line)
            if row is not None:
                step = int(row["step"])
                self._metrics.append([{**row, "step": step, "time_s": time.time()}])
                score = f"reward {row['reward']:.3f}" if "reward" in row else f"loss {row.get('loss', 0):.3f}"
                self.tell(step, max(self.total, step), score)
