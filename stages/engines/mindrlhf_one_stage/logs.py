"""Steps in the output of grpo_one_stage.py.

Source: mindrlhf 32599d0 to 9202c8f, examples/…/grpo_one_stage.py (main) and trainer/grpo_trainer.py
(make_experience, train). 875f92b and later generate once on trial before they train; only the "epoch: step:"
lines, which 32599d0 does not print, distinguish the trial from the first step.
"""

import re
from dataclasses import dataclass, field

from stages.engines.mindrlhf.logs import UPDATE, step_metrics, update_metrics
from stages.engines.mindrlhf_one_stage.config import Window
from stages.engines.outside import NUMBER, Row

_BEGIN_FIRST = re.compile(r"Make experience begin at ")
_BEGIN = re.compile(r"-+ epoch:\d+ step:\d+ -+")
_SCORE = re.compile(rf"Avg scores:\s+({NUMBER})")
_LENGTH = re.compile(rf"all_elements_compeltion_len mean: ({NUMBER})")
_DURATION = re.compile(rf"(?:Make experience, end at|steps \d+, end at) \S+, elapsed time ({NUMBER})")
_END = re.compile(r"^train over\s*$")


@dataclass
class LogReader:
    """Reads one worker's log line by line."""

    window: Window
    total: int = 0
    """Steps of the complete run."""
    step: int = 0
    """Steps begun."""
    _row: Row | None = None
    _updates: list[tuple[str, float]] = field(default_factory=list)

    def read(self, line: str) -> Row | None:
        """Process one line; return the metrics of the step that it ends."""
        begin = _BEGIN_FIRST if self.window == "32599d0" else _BEGIN
        if begin.search(line):
            self.step += 1
            self._row, self._updates = {"step": self.step, "step_s": 0.0}, []
        elif self._row is not None:
            return self._read_in_step(self._row, line)
        return None

    def _read_in_step(self, row: Row, line: str) -> Row | None:
        if match := _SCORE.search(line):
            row["reward"] = float(match[1])
        elif match := _LENGTH.search(line):
            row["completion_characters"] = float(match[1])  # of texts, not of ids
        elif match := _DURATION.search(line):
            row["step_s"] += float(match[1])
        elif match := UPDATE.search(line):
            self._updates += update_metrics(match)
        elif _END.search(line):
            self._row = None
            return row | step_metrics(self._updates)
        return None
