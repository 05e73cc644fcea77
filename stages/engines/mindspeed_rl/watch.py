"""Training that is under way: its iterations as metrics.jsonl, its samples as completions.jsonl."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.job import Job, engine_of
from stages.engines.mindspeed_rl.logs import read_line
from stages.engines.mindspeed_rl.samples import SampleReader
from stages.engines.outside import Report, StepWatcher, Watcher

DRIVER_LOG = "worker_0.log"
"""Log of the driver on the head node, to which Ray forwards its workers' output."""


def watch_tool(config: Mapping[str, Any], logs: Path, work: Path, report: Report) -> Watcher:
    """Follow a converter or preprocess_data.py."""
    return Watcher(logs / "start.log", engine_of(config), report)


class TrainWatcher(StepWatcher):
    """Writes metrics and completions; removes checkpoints beyond train.keep_checkpoints."""

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        """Begin; `work` is where metrics.jsonl grows and checkpoints/ lies."""
        super().__init__(logs / DRIVER_LOG, work, job.engine, report, completions=True)
        self._work, self._job = work, job
        self._sample_reader, self._samples = SampleReader(), list[dict[str, str]]()

    def read(self, line: str) -> None:
        """Take in one line; an iteration that Ray repeats counts once."""
        sample = self._sample_reader.read(line)
        if sample is not None and len(self._samples) < self._job.train.logged_completions:
            self._samples.append(sample)
        iteration = read_line(line, self._job.npus)
        if iteration is None or iteration.number <= self.last:
            return
        samples = [{"step": iteration.number, **sample} for sample in self._samples]
        self.add(iteration.row, iteration.total, samples)
        self._samples.clear()
        checkpoints.prune(self._work / "checkpoints", self._job.train.keep_checkpoints)
