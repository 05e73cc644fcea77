"""What grpo_one_stage.py prints, as rows of our metrics.

Source: mindrlhf 32599d0 to 9202c8f, examples/…/grpo_one_stage.py (main) and trainer/grpo_trainer.py
(make_experience, train). 875f92b and later generate once on trial before they train; only "epoch: step:"
lines, which 32599d0 does not print, tell the trial from the first step.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from stages.engines import outside
from stages.engines.mindrlhf.logs import UPDATE, means, of_update
from stages.engines.mindrlhf_one_stage.config import Window
from stages.engines.mindrlhf_one_stage.job import Job
from stages.engines.outside import NUMBER, START_FILE, Report, Row

_BEGIN = {
    "32599d0": re.compile(r"Make experience begin at "),
    "875f92b": re.compile(r"-+ epoch:\d+ step:\d+ -+"),
    "2d0e84d": re.compile(r"-+ epoch:\d+ step:\d+ -+"),
}
_SCORE = re.compile(rf"Avg scores:\s+({NUMBER})")
_LENGTH = re.compile(rf"all_elements_compeltion_len mean: ({NUMBER})")
_TOOK = re.compile(rf"(?:Make experience, end at|steps \d+, end at) \S+, elapsed time ({NUMBER})")
_END = re.compile(r"^train over\s*$")


@dataclass
class LogReader:
    """Reads one worker's log line by line."""

    window: Window
    step: int = 0
    """Steps begun."""
    _row: Row | None = None
    _seconds: float = 0.0
    _updates: list[tuple[str, float]] = field(default_factory=list)

    def read(self, line: str) -> Row | None:
        """Take in one line; the step's row when the step is over."""
        if _BEGIN[self.window].search(line):
            self.step += 1
            self._row, self._seconds, self._updates = {"step": self.step}, 0.0, []
        elif self._row is not None:
            return self._within(self._row, line)
        return None

    def _within(self, row: Row, line: str) -> Row | None:
        if match := _SCORE.search(line):
            row["reward"] = float(match[1])
        elif match := _LENGTH.search(line):
            row["completion_characters"] = float(match[1])  # of texts, not of ids
        elif match := _TOOK.search(line):
            self._seconds += float(match[1])
        elif match := UPDATE.search(line):
            self._updates += of_update(match)
        elif _END.search(line):
            row.update(means(self._updates))
            row["step_s"] = self._seconds
            self._row = None
            return row
        return None


class Watcher(outside.Watcher):
    """Follows the last worker's log: all generate and score the same, only the last stage knows the loss."""

    def __init__(self, logs: Path, work: Path, job: Job, report: Report) -> None:
        """Begin; metrics.jsonl grows in `work`, and what an earlier attempt left there is dropped."""
        super().__init__(
            logs, f"worker_{job.layout.train.cards - 1}.log", job.engine.silence_timeout_s, report
        )
        self._reader, self._steps = LogReader(job.window), outside.Steps(work)
        self._steps.begin(1)
        self._total = json.loads((work / START_FILE).read_text(encoding="utf-8"))["steps"]

    def read(self, line: str) -> None:
        """Take in one line."""
        if row := self._reader.read(line):
            step = self._steps.write(row)
            score = f"reward {row['reward']:.3f}" if "reward" in row else f"loss {row.get('loss', 0):.3f}"
            self.report(step, max(self._total, step), score)
