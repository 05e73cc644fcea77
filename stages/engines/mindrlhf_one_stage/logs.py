"""Steps in the output of grpo_one_stage.py.

Source: mindrlhf 2d0e84d to 9202c8f, examples/…/grpo_one_stage.py (main) and trainer/grpo_trainer.py
(make_experience, train). It generates once on trial before it trains; the first "epoch: step:" line follows.
"""

import re
from dataclasses import dataclass, field

from stages.engines.mindrlhf.logs import UPDATE, step_metrics, update_metrics
from stages.engines.outside import NUMBER, Row

_BEGIN = re.compile(r"-+ epoch:\d+ step:\d+ -+")
_VALUES = {  # lengths are those of texts, not of ids
    "reward": re.compile(rf"Avg scores:\s+({NUMBER})"),
    "completion_characters": re.compile(rf"all_elements_compeltion_len mean: ({NUMBER})"),
}
_DURATION = re.compile(rf"(?:Make experience, end at|steps \d+, end at) \S+, elapsed time ({NUMBER})")
_END = re.compile(r"^train over\s*$")


@dataclass
class LogReader:
    """Reads one worker's log line by line."""

    total: int
    """Steps of the complete run."""
    step: int = 0
    """Steps begun."""
    _row: Row | None = None
    _updates: list[tuple[str, float]] = field(default_factory=list)

    def read(self, line: str) -> tuple[Row, int] | None:
        """Process one line; return the metrics of the step that it ends, and the number of all steps."""
        if _BEGIN.search(line):
            self.step += 1
            self._row, self._updates = {"step": self.step, "step_s": 0.0}, []
        if (row := self._row) is None:
            return None
        for name, pattern in _VALUES.items():
            if match := pattern.search(line):
                row[name] = float(match[1])
        if match := _DURATION.search(line):
            row["step_s"] += float(match[1])
        elif match := UPDATE.search(line):
            self._updates += update_metrics(match)
        elif _END.search(line):
            self._row = None
            return row | step_metrics(self._updates), self.total
        return None
