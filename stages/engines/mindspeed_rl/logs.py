"""What MindSpeed-RL's driver says, as rows of our metrics.

One line per iteration: `iteration: 3 / 500 | key : value | key : value`, with Ray's `(train pid=…)` and a
time before it. Source: Ascend/MindSpeed-RL at 667a547 and 05a90d7, mindspeed_rl/utils/loggers.py,
trainer/grpo_trainer_hybrid.py and trainer/utils/compute_utils.py; docs/zh/features/log_metrics.md.
"""

import re
from dataclasses import dataclass

from stages.engines.outside import NUMBER, Row

_ITERATION = re.compile(r"\biteration: (\d+) / (\d+) \|(.*)")
_PAIR = re.compile(rf"([\w./-]+) : ({NUMBER})(?=\s|\||$)")
COLOURS = re.compile("\x1b\\[[0-9;]*m")
"""Colours that Ray puts around a worker's name."""
_VERIFIER = re.compile(r"(?:grpo/)?(\w+)_rewards/mean")  # with grpo/ in 667a547 (rule_verifier.py:169)
NAMES = {
    "grpo/rewards/mean": "reward",  # 667a547, and a reward model's
    "grpo/rewards/max": "reward_max",
    "grpo/rewards/min": "reward_min",
    "response_length/mean": "completion_length",
    "response_length/max": "completion_length_max",
    "prompt_length/mean": "prompt_length",
    "actor/pg_loss": "loss",
    "actor/kl_loss": "kl",
    "actor/entropy": "entropy",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/grad_norm": "grad_norm",
    "grad_norm": "grad_norm",  # 667a547
    "actor/lr": "lr",
    "grpo/lr": "lr",  # 667a547
    "timing/rollout": "rollout_s",
    "timing/rule_reward": "reward_s",
    "timing/reference_model": "reference_s",
    "timing/update": "train_s",
    "timing/all": "step_s",
}
"""Upstream's metric -> grpoflow's."""
SCORES = {"grpo/score/mean": "reward", "grpo/score/max": "reward_max", "grpo/score/min": "reward_min"}
"""05a90d7 has only these: the sum of the weighted verifiers."""
RATES = {"e2e_tps": "tokens_per_s", "vllm_tps": "rollout_tokens_per_s", "update_tps": "train_tokens_per_s"}
"""Per card there, of the whole run here; prompts count, too."""


@dataclass(frozen=True)
class Iteration:
    """One line."""

    number: int
    """Number of the iteration, from 1."""
    total: int
    row: Row


def read_line(line: str, cards: int) -> Iteration | None:
    """Parse a line that reports an iteration; return None for any other line."""
    match = _ITERATION.search(COLOURS.sub("", line))
    if match is None:
        return None
    values = {name: float(value) for name, value in _PAIR.findall(match[3])}
    row: Row = {"step": float(match[1])}
    for names in (SCORES, NAMES):  # rewards, where they are told, are what is trained on
        row.update({ours: values[name] for name, ours in names.items() if name in values})
    row.update({ours: values[name] * cards for name, ours in RATES.items() if name in values})
    for name, value in values.items():
        if verifier := _VERIFIER.fullmatch(name):
            row[f"reward/{verifier[1]}"] = value
    return Iteration(int(match[1]), int(match[2]), row)
