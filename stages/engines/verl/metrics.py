"""Metrics and completions that verl writes.

One line per step: {"step": N, "data": {metric: number}}; and a file N.jsonl with a line per completion.
Source: verl 0.9.1, utils/tracking.py (FileLogger), trainer/ppo/metric_utils.py, v1/trainer_base.py.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.engines.outside import Row
from stages.grpo.config import TrainConfig
from stages.grpo.metrics import StepLog

NAMES = {
    "critic/score/mean": "reward",
    "critic/score/max": "reward_max",
    "critic/score/min": "reward_min",
    "response_length/mean": "completion_length",
    "response_length/max": "completion_length_max",
    "response_length/clip_ratio": "completion_cut_share",
    "prompt_length/mean": "prompt_length",
    "actor/pg_loss": "loss",
    "actor/kl_loss": "kl",
    "actor/entropy": "entropy",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "lr",
    "timing_s/gen": "rollout_s",
    "timing_s/reward": "reward_s",
    "timing_s/ref": "reference_s",
    "timing_s/update_actor": "train_s",
    "timing_s/update_weights": "reshard_s",
    "timing_s/step": "step_s",
}
"""verl's metric -> grpoflow's."""


def row(line: Mapping[str, Any]) -> Row:
    """Return the metrics of a step; verl writes null for numbers that are not finite."""
    data = line["data"]
    values = {name: float(data[metric]) for metric, name in NAMES.items() if data.get(metric) is not None}
    return {"step": int(line["step"]), **values}


def write_completions(source: Path, target: Path, train: TrainConfig) -> None:
    """Write the first completions of every train.completions_every-th step."""
    if source.is_dir():
        StepLog(target, 0).append(_completions(source, train))


def _completions(source: Path, train: TrainConfig) -> Iterator[dict[str, Any]]:
    for step in range(train.completions_every, train.steps + 1, train.completions_every):
        file = source / f"{step}.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        for line in lines[: train.logged_completions]:
            entry = json.loads(line)
            names = {"input": "prompt", "output": "completion", "gts": "solution", "score": "reward"}
            yield {"step": step, **{name: entry[key] for key, name in names.items()}}
