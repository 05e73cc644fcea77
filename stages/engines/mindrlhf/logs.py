"""Logs of mindrlhf's workers, which become metrics.jsonl and completions.jsonl while the run writes them.

Source: mindrlhf e8a8fc1, trainer/spmd/grpo_trainer.py (run_grpo_train), grpo_experience_maker.py and
worker/train_worker.py (train). Its step counters restart at 0 when a run resumes; the epoch and step at a
step's begin do not.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.base.follow import Follower
from stages.engines.mindrlhf.job import Job
from stages.engines.outside import NUMBER, Report, Row, StepWatcher

FINISHED = "run grpo train end"
"""Line without which a run has not succeeded (stage.py, collect)."""
# In the order of a run's lines. Only lines from _BEGIN to _SPEED belong to a step: a later one would be lost.
_PLAN = re.compile(r"Start training epoch num:(\d+), step num:(\d+)")
_BEGIN = re.compile(r"epoch: (\d+), step: (\d+) start\s*$")
_METRICS = re.compile(r"total step \d+ metrics: \{(.*)\}")
_PAIR = re.compile(rf"'(\w+)': (?:np\.\w+\()?({NUMBER})")
UPDATE = re.compile(
    r"loss: (.+?) \| lr: (.+?) \| is overflow: (.+?) \| loss scale: ([^|]+)(?:\| grad norm: (.+))?$"
)
_SAVED = re.compile(r"Saved data to (\S.*prompt_completions_step_\S+\.json)")
_SPEED = re.compile(rf"step processed tokens ({NUMBER}), tokens/s/p ({NUMBER})")
_NUMBER = re.compile(NUMBER)
NAMES = {
    "reward_mean": "reward",
    "reward_max": "reward_max",
    "reward_min": "reward_min",
    "response_length_mean": "completion_length",
    "response_length_max": "completion_length_max",
    "response_length_clip_ratio": "completion_cut_share",
    "prompt_length_mean": "prompt_length",
}
"""mindrlhf's metric -> grpoflow's (stages/grpo/metrics.py)."""


@dataclass
class LogReader:
    """Reads one worker's log line by line."""

    workers: int
    """Cards, by which mindrlhf divides its token rate."""
    epochs: int = 0
    steps_per_epoch: int = 0
    completions: list[tuple[int, Path]] = field(default_factory=list)
    """(step, file) of the completions that were saved."""
    _row: Row | None = None
    _updates: list[tuple[str, float]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Steps of the complete run, 0 if unknown."""
        return self.epochs * self.steps_per_epoch

    def read(self, line: str) -> Row | None:
        """Process one line; return the metrics of the step that it ends."""
        if match := _PLAN.search(line):
            self.epochs, self.steps_per_epoch = int(match[1]), int(match[2])
        elif match := _BEGIN.search(line):
            step = int(match[1]) * self.steps_per_epoch + int(match[2]) + 1
            self._row, self._updates = {"step": step}, []
        elif self._row is not None:
            return self._read_in_step(self._row, line)
        return None

    def _read_in_step(self, row: Row, line: str) -> Row | None:
        if match := _METRICS.search(line):
            values = {name: float(value) for name, value in _PAIR.findall(match[1])}
            row.update({metric: values[name] for name, metric in NAMES.items() if name in values})
        elif match := _SAVED.search(line):
            self.completions.append((int(row["step"]), Path(match[1])))
        elif match := UPDATE.search(line):
            self._updates += update_metrics(match)
        elif match := _SPEED.search(line):
            rate = float(match[2]) * self.workers
            if rate > 0:
                row.update(tokens_per_s=rate, step_s=float(match[1]) / rate)
            self._row = None
            return row | step_metrics(self._updates)
        return None


def update_metrics(match: re.Match[str]) -> list[tuple[str, float]]:
    """Return the metrics of an update from a line that UPDATE matches."""
    numbers = []
    for name, text in zip(("loss", "lr", "grad_norm"), (match[1], match[2], match[5]), strict=True):
        if text is not None and (number := _NUMBER.search(text)):
            numbers.append((name, float(number[0])))
    return [*numbers, ("overflow", float("True" in match[3] or match[3].strip("[] ") == "1"))]


def step_metrics(updates: list[tuple[str, float]]) -> Row:
    """Return the mean of each metric over a step's updates, and the last learning rate."""
    result: Row = {}
    for name in dict.fromkeys(name for name, _ in updates):
        values = [value for key, value in updates if key == name]
        result[name] = values[-1] if name == "lr" else sum(values) / len(values)
    if updates:
        result["updates"] = float(sum(name == "loss" for name, _ in updates))
    return result


class Watcher(StepWatcher):
    """Reads steps from a worker of the last pipeline stage, the only one with the loss.

    All workers log the same rewards; worker 0 logs the files with completions.
    """

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        train = job.layout.train
        worker = train.cards - 1 if train.pipeline_stage > 1 else 0
        super().__init__(logs / f"worker_{worker}.log", work, report, completions=True)
        self.train = job.train
        self.steps, self.saved = LogReader(train.cards), LogReader(train.cards)
        # `saved` collects the files of completions only; its rows are not used
        self._first_log = Follower(logs / "worker_0.log")

    def poll(self) -> None:
        """Read new lines; called ten times a second, and when the run has ended."""
        for line in self.lines(self._first_log):
            self.parse(self.saved.read, line)
        super().poll()

    def read(self, line: str) -> None:
        """Process one line."""
        row = self.parse(self.steps.read, line)
        if row is None:
            return
        completions = [
            completion
            for step, path in self.saved.completions
            if step % self.train.completions_every == 0
            for completion in self._completions(path, step)
        ]
        self.saved.completions.clear()
        self.add(row, self.steps.total, completions)

    def _completions(self, path: Path, step: int) -> list[dict[str, Any]]:
        """Return the completions in a saved file; none, with a warning, if it is malformed."""
        count = self.train.logged_completions
        return self.parse(lambda name: read_completions(Path(name), step, count), str(path)) or []


def read_completions(path: Path, step: int, count: int) -> list[dict[str, Any]]:
    """Read the first rows of a prompt_completions_step_N.json with grpoflow's names; none without the file.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: its content has another form.
    """
    try:
        content = path.read_bytes()
    except OSError:  # a worker on another machine wrote it to a disk of its own
        return []
    return [
        {
            "step": step,
            "prompt": row["question"],
            "completion": row["answer"],
            "solution": row["solution"].strip("$"),
            "reward": row["reward"],
            "length": row["completion_length"],
        }
        for row in json.loads(content)[:count]
    ]
