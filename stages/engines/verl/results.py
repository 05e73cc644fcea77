"""What a verl run writes: checkpoints, metrics and completions.

Checkpoints are CHECKPOINTS/global_step_N and a tracker file. The names of shards contain the number of
workers; verl resumes with this number only. Shards are pickles of torch, which are not read. data.pt is
written after all of them. Metrics are one line per step, {"step": N, "data": {metric: number}}; completions
are files N.jsonl with a line each.
Source: verl 0.9.1, trainer/ppo/v1/trainer_base.py (_save_checkpoint, _load_checkpoint),
utils/checkpoint/fsdp_checkpoint_manager.py, utils/tracking.py (FileLogger), trainer/ppo/metric_utils.py.
"""

import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stages.engines.outside import MALFORMED, Row
from stages.engines.tracked_checkpoints import TrackedCheckpoints
from stages.engines.verl import agent
from stages.engines.verl.inference import MISMATCH_LIMITS
from stages.engines.verl.job import Job
from stages.grpo.config import TrainConfig
from stages.grpo.metrics import StepLog, read_rows

ACTOR = "actor"
PARTS = ("model", "optim", "extra_state")
METRIC_NAMES = {
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
    "timing_s/testing": "validation_s",
    "training/off_policy/trajectory_staleness_worst/mean": "staleness",
    "training/off_policy/trajectory_staleness_worst/max": "staleness_max",
    "rollout_corr/log_ppl_abs_diff": "rollout_logprob_diff",
    "training/rollout_probs_diff_max": "rollout_prob_diff_max",
    "rollout_corr/k3_kl": "rollout_kl",
    "rollout_corr/ppl_ratio": "rollout_perplexity_ratio",
    "rollout_corr/rollout_is_mean": "correction_weight",
    "rollout_corr/rollout_rs_masked_fraction": "correction_rejected_share",
    **agent.METRICS,
}
"""verl's metric -> grpoflow's (stages/grpo/metrics.py)."""
VALIDATION = re.compile(r"val-core/.*/acc/mean@1")
"""verl's metric for the accuracy of greedy answers; the middle is the name of the data set."""
FURTHER_GROUPS = (
    "training/filter_groups/evicted_samples",
    "training/filter_groups/discarded_surplus_samples",
)
"""verl's metrics that count groups of dynamic sampling that were not trained on."""
COMPLETION_NAMES = {"input": "prompt", "output": "completion", "gts": "solution", "score": "reward"}
"""verl's key of a completion -> grpoflow's."""


def checkpoints(root: Path, job: Job) -> TrackedCheckpoints:
    """Return the checkpoints of a run."""
    return TrackedCheckpoints(root, "global_step_{}", partial(checkpoint_defect, job))


def checkpoint_defect(job: Job, directory: Path) -> str | None:
    """Return what is missing or truncated in a step's checkpoint; None if it is complete."""
    if not (directory / "data.pt").is_file():
        return "data.pt is missing"
    if job.engine.strategy == "megatron":  # its shards have other names, and one directory for all
        return None if any((directory / ACTOR).iterdir()) else "it is empty"
    size = job.train_cards
    names = [f"{part}_world_size_{size}_rank_{rank}.pt" for rank in range(size) for part in PARTS]
    for file in (directory / ACTOR / name for name in names):
        if not file.is_file():
            saved = sorted(path.name for path in file.parent.glob(f"{PARTS[0]}_world_size_*"))
            hint = f"; it was saved as {saved[0]}" if saved else ""
            return f"{file.name} is missing{hint}"
        if not zipfile.is_zipfile(file):
            return f"{file.name} is truncated"
    return None


def read_metrics(line: str) -> Row:
    """Return the metrics of the step in a line; verl writes null for numbers that are not finite."""
    entry = json.loads(line)
    data, named = entry["data"], METRIC_NAMES.items()
    values = {name: float(data[metric]) for metric, name in named if data.get(metric) is not None}
    for metric, value in data.items():
        if VALIDATION.fullmatch(metric) and value is not None:
            values["validation_accuracy"] = float(value)
    if further := [float(data[metric]) for metric in FURTHER_GROUPS if metric in data]:
        values["unused_groups"] = sum(further)
    return {"step": int(entry["step"]), **values}


def with_sampled_groups(row: Row, job: Job) -> Row:
    """Return a step's metrics with the number of groups that dynamic sampling has sampled."""
    if not job.train.resample_rounds:
        return row
    further = row.pop("unused_groups", 0.0)
    return {**row, "sampled_groups": job.train.prompts_per_step + further}


def checks(file: Path) -> dict[int, float]:
    """Return the accuracy of each step of a file of metrics that was checked."""
    return checks_of(read_rows(file))


def checks_of(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the accuracy of each step that was checked."""
    name = "validation_accuracy"
    return {row["step"]: row[name] for row in rows if name in row}


def best(checked: Mapping[int, float]) -> int | None:
    """Return the first step of the best accuracy; None if no step was checked."""
    return min(checked, key=lambda step: (-checked[step], step), default=None)


def mismatch_warnings(rows: Iterable[Mapping[str, Any]], job: Job) -> Iterator[str]:
    """Yield a warning if completions were sampled from another distribution than the trained one."""
    name, limit = "rollout_logprob_diff", MISMATCH_LIMITS[job.engine.device]
    above = [row for row in rows if not row.get(name, 0.0) <= limit]
    if above:
        worst = max(above, key=lambda row: math.inf if math.isnan(row[name]) else row[name])
        remedy = "check that engine.rollout computes in the dtype that is trained"
        if job.rollout.correction == "none":
            remedy += ", or set rollout.correction=tis"
        yield (
            f"{name} is above {limit:g} in {len(above)} steps, up to {worst[name]:.3g} in step "
            f"{worst['step']}: completions come from another distribution than the trained model's; {remedy}"
        )


def unrecorded_steps(file: Path, step: int) -> list[int]:
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
                row = {name: entry[key] for key, name in COMPLETION_NAMES.items()}
            except MALFORMED:
                malformed.append(f"{file}:{number}")
            else:
                yield {"step": step, **row}
