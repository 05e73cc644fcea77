"""Metrics and completions that verl writes.

One line per step: {"step": N, "data": {metric: number}}; and a file N.jsonl with a line per completion.
Source: verl 0.9.1, utils/tracking.py (FileLogger), trainer/ppo/metric_utils.py, v1/trainer_base.py.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from stages.engines.outside import MALFORMED, Row
from stages.engines.verl.upstream import FIELDS
from stages.grpo.config import TrainConfig
from stages.grpo.metrics import StepLog, read_rows

NAMES: Mapping[str, str] = yaml.safe_load((FIELDS / "metrics.yaml").read_text(encoding="utf-8"))
"""verl's metric -> grpoflow's."""
COMPLETION = {"input": "prompt", "output": "completion", "gts": "solution", "score": "reward"}
"""verl's key of a completion -> grpoflow's."""


def read_row(line: str) -> Row:
    """Return the metrics of the step in a line; verl writes null for numbers that are not finite."""
    entry = json.loads(line)
    data = entry["data"]
    values = {name: float(data[metric]) for metric, name in NAMES.items() if data.get(metric) is not None}
    return {"step": int(entry["step"]), **values}


def unrecorded(file: Path, step: int) -> list[int]:
    """Return the steps up to `step` without metrics; verl saves a checkpoint before it logs a step."""
    return sorted(set(range(1, step + 1)) - {row["step"] for row in read_rows(file)})


def write_completions(source: Path, target: Path, train: TrainConfig) -> list[str]:
    """Write the first completions of every train.completions_every-th step; return the malformed lines."""
    malformed = list[str]()
    if source.is_dir():
        StepLog(target, 0).append(_completions(source, train, malformed))
    return malformed


def _completions(source: Path, train: TrainConfig, malformed: list[str]) -> Iterator[dict[str, Any]]:
    for step in range(train.completions_every, train.steps + 1, train.completions_every):
        file = source / f"{step}.jsonl"
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        # splitlines() would also end a line at characters of a completion, such as U+2028
        for number, line in enumerate(text.split("\n")[:-1][: train.logged_completions], start=1):
            try:
                entry = json.loads(line)
                row = {name: entry[key] for key, name in COMPLETION.items()}
            except MALFORMED:
                malformed.append(f"{file}:{number}")
            else:
                yield {"step": step, **row}
