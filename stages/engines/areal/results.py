"""What an AReaL run writes: the state to resume from, metrics, completions, and the trained model.

The driver writes the state to two places in turn and names the complete one in state.json; metrics are one
line per step, {"step": N, "data": {metric: number}}; the model is a Hugging Face directory that appears by
one rename (programs/grpoflow_areal/driver.py).
Source: AReaL 1.0.4, utils/recover.py, utils/stats_logger.py, trainer/ppo/actor.py.
"""

import json
import shutil
from pathlib import Path

from stages.base.errors import InputError
from stages.engines.outside import REMEDY, Row
from stages.grpo.metrics import read_rows

STATE = "state.json"
"""File in the checkpoints' directory: {"slot": NAME, "step": N}."""
METRIC_NAMES = {
    "ppo_actor/task_reward/avg": "reward",
    "ppo_actor/task_reward/max": "reward_max",
    "ppo_actor/task_reward/min": "reward_min",
    "ppo_actor/prompt_len/avg": "prompt_length",
    "ppo_actor/update/actor_loss/avg": "loss",
    "ppo_actor/update/entropy/avg": "entropy",
    "ppo_actor/update/clip_ratio/avg": "clip_fraction",
    "ppo_actor/update/behave_imp_weight/avg": "correction_weight",
    "ppo_actor/update/grad_norm": "grad_norm",
    "ppo_actor/update/lr": "lr",
    "timeperf/rollout": "rollout_s",
    "timeperf/ref_logp": "reference_s",
    "timeperf/train_step": "train_s",
    "timeperf/update_weights": "reshard_s",
}
"""AReaL's metric -> grpoflow's (stages/grpo/metrics.py)."""
OWN = "grpoflow/"
"""Start of the metrics that the driver adds, by grpoflow's names (programs/grpoflow_areal/batches.py)."""
TOKENS, COMPLETIONS = "tokens", "completions"
"""Numbers of the step among them, from which rates follow."""
PART = "rollout/part_"
"""Start of the metrics of single reward functions, which the workflow gives to AReaL."""


def prepare_resume(checkpoints: Path, last: int) -> int | None:
    """Return the step of the complete state, at most `last`; None if the run must start from the beginning.

    What belongs to no complete state is removed.
    """
    state = read_state(checkpoints)
    if state is None or state[1] > last:
        shutil.rmtree(checkpoints, ignore_errors=True)
        return None
    return state[1]


def read_state(checkpoints: Path) -> tuple[str, int] | None:
    """Return place and step of the complete state; None without one."""
    try:
        state = json.loads((checkpoints / STATE).read_text(encoding="utf-8"))
        slot, step = str(state["slot"]), int(state["step"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return (slot, step) if (checkpoints / slot).is_dir() else None


def read_metrics(line: str) -> Row:
    """Return the metrics of the step in a line."""
    entry = json.loads(line)
    data = {name: float(value) for name, value in entry["data"].items()}
    values = {name: data[metric] for metric, name in METRIC_NAMES.items() if metric in data}
    own = {name.removeprefix(OWN): value for name, value in data.items() if name.startswith(OWN)}
    values |= {name: value for name, value in own.items() if name not in (TOKENS, COMPLETIONS)}
    parts = {name: value for name, value in data.items() if name.startswith(PART)}
    values |= {f"reward/{name.removeprefix(PART)}": value for name, value in parts.items()}
    phases = (name for name in data if name.startswith("timeperf/") and not name.endswith("__count"))
    seconds = values["step_s"] = sum(data[name] for name in phases)
    if seconds > 0:
        values["wait_share"] = values.get("rollout_s", 0.0) / seconds
        values["tokens_per_s"] = own.get(TOKENS, 0.0) / seconds
        values["completions_per_s"] = own.get(COMPLETIONS, 0.0) / seconds
    if values.get("train_s"):
        values["train_tokens_per_s"] = own.get(TOKENS, 0.0) / values["train_s"]
    return {"step": int(entry["step"]), **values}


def check_model(final: Path) -> None:
    """Raise InputError unless the directory of the trained model is there and complete."""
    names = ("config.json", "*.safetensors")
    for name in names:
        if not any(final.glob(name)):
            rule = f"must hold {name}: the driver writes it after the last step, the proof of a finished run"
            raise InputError(final, None, rule, REMEDY)


def check_steps(metrics: Path, steps: int) -> None:
    """Raise InputError unless the metrics of the last step are there."""
    rows = read_rows(metrics)
    last = rows[-1]["step"] if rows else 0
    if last != steps:
        rule = f"must end with step {steps}, the proof of a finished run, but ends with step {last}"
        raise InputError(metrics, None, rule, REMEDY)
