"""Metrics and completions in the driver's log.

One line per iteration: `iteration: 3 / 500 | key : value | key : value`, after Ray's `(train pid=…)` and a
time. Scoring processes print one sample per batch: question, answer and label, each after a line that begins
with `>>>>>>>>>>`, between lines of equal signs; each may have several lines.
Source: Ascend/MindSpeed-RL at 667a547 and 05a90d7: mindspeed_rl/utils/loggers.py,
trainer/grpo_trainer_hybrid.py, trainer/utils/compute_utils.py, models/rule_verifier.py
(compute_verifier_score); docs/zh/features/log_metrics.md.
"""

import functools
import re
from pathlib import Path

import yaml

from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.job import Job
from stages.engines.mindspeed_rl.train_yaml import FIELDS
from stages.engines.outside import NUMBER, Report, Row, StepWatcher

DRIVER_LOG = "worker_0.log"
"""Log of the driver on the head node, to which Ray forwards its workers' output."""
_ITERATION = re.compile(r"\biteration: (\d+) / (\d+) \|(.*)")
_PAIR = re.compile(rf"([\w./-]+) : ({NUMBER})(?=\s|\||$)")
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
"""Colours of a worker's name in Ray's output."""
_VERIFIER = re.compile(r"(?:grpo/)?(\w+)_rewards/mean")  # with grpo/ in 667a547 (rule_verifier.py:169)
_METRICS = yaml.safe_load((FIELDS / "metrics.yaml").read_text(encoding="utf-8"))
NAMES, SCORES, RATES = (_METRICS[group] for group in ("names", "scores", "rates"))
"""Upstream's metrics -> grpoflow's: training's, of 05a90d7's verifiers, and rates per card."""
_PROCESS = re.compile(r"\(\w+ (pid=\d+[^)]*)\) ?(.*)")
_MESSAGE = re.compile(r".*?\[\d{4}-\d\d-\d\d [^\]]*\] INFO (.*)")
_MARK = ">" * 10
_SAMPLE_END = re.compile(r"={50}\s*")
_SAMPLE_PART = re.compile(rf"\0{_MARK} (\w+):?\s*\0([^\0]*)")
_SAMPLE_KEYS = {"User": "prompt", "Assistant": "completion", "labels": "solution"}


def read_line(line: str, cards: int) -> tuple[Row, int] | None:
    """Return the metrics of the iteration that a line reports, and the number of all iterations."""
    match = _ITERATION.search(_COLOURS.sub("", line))
    if match is None:
        return None
    values = {name: float(value) for name, value in _PAIR.findall(match[3])}
    row: Row = {"step": float(match[1])}
    for names in (SCORES, NAMES):  # training uses rewards; they replace scores if both are logged
        row.update({metric: values[name] for name, metric in names.items() if name in values})
    row.update({metric: values[name] * cards for name, metric in RATES.items() if name in values})
    for name, value in values.items():
        if verifier := _VERIFIER.fullmatch(name):
            row[f"reward/{verifier[1]}"] = value
    return row, int(match[2])


class SampleReader:
    """Collects samples from the mixed lines of several processes."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        """Process -> its output since its sample began; every message of its logger begins with NUL."""

    def read(self, line: str) -> dict[str, str] | None:
        """Read one line; return the sample that it completes, else None."""
        match = _PROCESS.fullmatch(_COLOURS.sub("", line).rstrip("\r\n"))
        if match is None:
            return None
        process, text = match.groups()
        message = _MESSAGE.fullmatch(text)
        if message and _SAMPLE_END.fullmatch(message[1]):
            parts = dict(_SAMPLE_PART.findall(self._texts.pop(process, "")))
            sample = {key: parts[name].strip() for name, key in _SAMPLE_KEYS.items() if name in parts}
            return sample if {"prompt", "completion"} <= sample.keys() else None
        if process in self._texts or (message and message[1].startswith(_MARK)):
            added = f"\0{message[1]}\n" if message else f"{text}\n"
            self._texts[process] = self._texts.get(process, "") + added
        return None


class TrainWatcher(StepWatcher):
    """Writes metrics.jsonl and completions.jsonl; removes checkpoints beyond train.keep_checkpoints."""

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        super().__init__(logs / DRIVER_LOG, work, report, completions=True)
        self._job, self._checkpoints = job, checkpoints.of_run(work / "checkpoints", job.layout.train)
        self._sample_reader, self._samples = SampleReader(), list[dict[str, str]]()

    def read(self, line: str) -> None:
        """Process one line; an iteration that Ray repeats counts once."""
        sample = self.parse(self._sample_reader.read, line)
        if sample is not None and len(self._samples) < self._job.train.logged_completions:
            self._samples.append(sample)
        iteration = self.parse(functools.partial(read_line, cards=self._job.npus), line)
        if iteration is None or iteration[0]["step"] <= self.last:
            return
        row, total = iteration
        step = int(row["step"])
        samples = self._samples if step % self._job.train.completions_every == 0 else []
        self.add(row, total, [{"step": step, **sample} for sample in samples])
        self._samples.clear()
        self._checkpoints.prune(self._job.train.keep_checkpoints)  # MindSpeed-RL itself keeps all
