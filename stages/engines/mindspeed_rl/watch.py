"""A program that is under way: its last lines as progress, and training's iterations as metrics.jsonl."""

from __future__ import annotations

import time
from pathlib import Path

from stages.base.follow import Follower, Silence
from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.job import Job
from stages.engines.mindspeed_rl.logs import Iteration, read_line
from stages.engines.mindspeed_rl.samples import SampleReader
from stages.engines.outside import Tell
from stages.grpo.metrics import StepLog

DRIVER_LOG = "worker_0.log"
"""What the driver on the head says; Ray passes on to it what its workers say."""
_LINE = 160
"""Characters of a line that are shown."""


class Watcher:
    """Tells the last line of a program that says nothing better."""

    def __init__(self, logs: Path, log: str, silence_timeout_s: float | None, tell: Tell) -> None:
        """Begin.

        Args:
            logs: directory of this attempt's logs.
            log: name of the one that is followed.
            silence_timeout_s: a run that is silent for longer is hung; None: never.
            tell: called with step, total and a message.
        """
        self.silence_timeout_s, self.tell = silence_timeout_s, tell
        self._log, self._silence = Follower(logs / log), Silence(logs)

    def poll(self, ended: bool = False) -> None:
        """Read what is new."""
        for line in self._log.lines():
            self.read(line)

    def read(self, line: str) -> None:
        """Take in one line."""
        if line.strip():
            self.tell(0, 1, line.strip()[:_LINE])

    def silent_s(self) -> float:
        """Seconds since any process last wrote a line."""
        return self._silence.seconds()


class TrainWatcher(Watcher):
    """Writes metrics.jsonl and completions.jsonl; removes checkpoints beyond train.keep_checkpoints."""

    def __init__(self, logs: Path, work: Path, job: Job, tell: Tell) -> None:
        """Begin; `work` is where metrics.jsonl grows and checkpoints/ lies."""
        super().__init__(logs, DRIVER_LOG, job.engine.silence_timeout_s, tell)
        self._work, self._job = work, job
        self._metrics: StepLog | None = None
        self._completions: StepLog | None = None
        self._reader, self._samples = SampleReader(), list[dict[str, str]]()
        self._last: Iteration | None = None

    def read(self, line: str) -> None:
        """Take in one line; an iteration that Ray repeats counts once."""
        sample = self._reader.read(line)
        if sample is not None and len(self._samples) < self._job.train.logged_completions:
            self._samples.append(sample)
        found = read_line(line, self._job.npus)
        if found is None or (self._last is not None and found.number <= self._last.number):
            return
        self._last = found
        if self._metrics is None or self._completions is None:
            # what a killed attempt wrote from here on is written again
            self._metrics = StepLog(self._work / "metrics.jsonl", found.number - 1)
            self._completions = StepLog(self._work / "completions.jsonl", found.number - 1)
        self._metrics.append([{**found.row, "step": found.number, "time_s": time.time()}])
        self._completions.append({"step": found.number, **sample} for sample in self._samples)
        self._samples.clear()
        reward, length = (found.row.get(name, float("nan")) for name in ("reward", "completion_length"))
        self.tell(found.number, found.total, f"reward {reward:.3f}, length {length:.1f}")
        checkpoints.prune(self._work / "checkpoints", self._job.train.keep_checkpoints)
