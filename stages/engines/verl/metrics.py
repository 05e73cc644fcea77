"""Metrics and completions that verl writes.

One line per step: {"step": N, "data": {metric: number}}; and a file N.jsonl with a line per completion.
Source: verl 0.9.1, utils/tracking.py (FileLogger), trainer/ppo/metric_utils.py, v1/trainer_base.py.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from stages.engines.outside import Row
from stages.engines.verl.upstream import FIELDS
from stages.grpo.config import TrainConfig
from stages.grpo.metrics import StepLog, read_rows

NAMES: Mapping[str, str] = yaml.safe_load((FIELDS / "metrics.yaml").read_text(encoding="utf-8"))
"""verl's metric -> grpoflow's."""


def row(line: Mapping[str, Any]) -> Row:
    """Return the metrics of a step; verl writes null for numbers that are not finite."""
    data = line["data"]
    values = {name: float(data[metric]) for metric, name in NAMES.items() if data.get(metric) is not None}
    return {"step": int(line["step"]), **values}


def unrecorded(file: Path, step: int) -> list[int]:
    """Return the steps up to `step` without metrics; verl saves a checkpoint before it logs a step."""
    return sorted(set(range(1, step + 1)) - {row["step"] for row in read_rows(file)})


def write_completions(source: Path, target: Path, train: TrainConfig) -> None:
    """Write the first completions of every train.completions_every-th step."""
    if source.is_dir():
        StepLog(target, 0).append(_completions(source, train))


def _completions(source: Path, train: TrainConfig) -> Iterator[dict[str, Any]]:
    for step in range(train.completions_every, train.steps + 1, train.completions_every):
        file = source / f"{step}.jsonl"
        # splitlines() would also end a line at characters of a completion, such as U+2028
        lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.is_file() else []
        for line in lines[: train.logged_completions]:
            entry = json.loads(line)
            names = {"input": "prompt", "output": "completion", "gts": "solution", "score": "reward"}
            yield {"step": step, **{name: entry[key] for key, name in names.items()}}
