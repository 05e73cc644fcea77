"""What mindformers says of its steps, as rows of our metrics.

Source: mindformers 051d65f and 1.6.0, core/callback/callback.py (MFLossMonitor.print_output_info) and
trainer/base_trainer.py (training_process).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from stages.engines import outside
from stages.engines.mindformers.job import Job
from stages.engines.outside import NUMBER, Report, Row

FINISHED = "Training Over!"
_STEP = re.compile(
    r"\{ Epoch:\[\s*(\d+)/\s*(\d+)\], step:\[\s*(\d+)/\s*(\d+)\], loss:\s*\[?\s*"
    rf"({NUMBER})(?:/\s*{NUMBER}\])?, per_step_time: (\d+)ms"
)
_NAMED = re.compile(r"(lr|overflow cond|global_norm): ([^,]+)")
_FIRST = re.compile(NUMBER)


@dataclass
class LogReader:
    """Reads one worker's log line by line."""

    tokens: int
    """Tokens of one update, padding included: for the speed."""
    total: int = 0
    """Steps of the whole run, 0 as long as it is unknown."""

    def read(self, line: str) -> Row | None:
        """Parse a line that reports a step; return None for any other line."""
        match = _STEP.search(line)
        if match is None:
            return None
        epoch, epochs, step, steps = (int(match[group]) for group in range(1, 5))
        self.total = epochs * steps
        row: Row = {"step": (epoch - 1) * steps + step, "loss": float(match[5])}
        seconds = int(match[6]) / 1000
        if seconds > 0:
            row.update(step_s=seconds, tokens_per_s=self.tokens / seconds)
        values = dict(_NAMED.findall(line))
        for name, key in (("lr", "lr"), ("grad_norm", "global_norm")):
            if key in values and (number := _FIRST.search(values[key])):
                row[name] = float(number[0])
        if "overflow cond" in values:
            row["overflow"] = float(values["overflow cond"].strip("[] ") in ("True", "1"))
        return row


class Watcher(outside.Watcher):
    """Follows the last worker's log: with a pipeline, only the last stage knows the loss."""

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        """Begin; metrics.jsonl grows in `work`."""
        cards, settings = job.layout.cards, job.mindformers
        super().__init__(logs, f"worker_{cards - 1}.log", settings.silence_timeout_s, report)
        self._reader, self._steps = LogReader(settings.batch_size * job.seq_length), outside.Steps(work)

    def read(self, line: str) -> None:
        """Take in one line."""
        if row := self._reader.read(line):
            step = self._steps.write(row)
            self.report(step, max(self._reader.total, step), f"loss {row['loss']:.3f}")
