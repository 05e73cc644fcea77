"""The recipe of a rehearsal with PyTorch: a small model and few steps on a CPU.

Template, algorithm and rewards stay those of the run. The engine's settings are shrunk by its own module.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines import rehearsal
from stages.engines.rehearsal import STEPS

ROWS = 16
"""Rows of the training data; at least two steps."""
HELD_OUT = 4
"""Prompts of a check, if the run makes any."""
MAX_TOKENS, COMPLETIONS, PROMPTS = 32, 4, 2
"""Upper limits: tokens of a completion, completions of a prompt, prompts of an update."""
REWARD = "grpoflow_rehearsal_reward"
"""Module with an additional reward function: a random model earns no other, and would learn nothing."""
REWARD_SOURCE = '''"""Reward of a rehearsal."""


def letters(completions: list[str], solutions: list[str]) -> list[float]:
    """Return the share of the letters a to m, in which texts of a random model differ."""
    return [sum("a" <= letter <= "m" for letter in text) / max(1, len(text)) for text in completions]
'''


def shrink(config: Mapping[str, Any], model: Path, workers: int) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of a plain configuration.

    Args:
        config: the run's configuration.
        model: directory of the small model.
        workers: number of workers, which shard the model by FSDP2.
    """
    small = rehearsal.shrink(config, model, workers)
    _shrink_steps(small)
    held_out = small["train"]["validation_prompts"] if small["train"]["validate_every"] else 0
    small["dataset"]["train_rows"] = max(ROWS, STEPS * small["train"]["prompts_per_step"]) + held_out
    small["engine"] |= {"container": (), "ray_address": None, "ray_dashboard_port": None, "ray_options": ()}
    reward = small["reward"]
    reward["functions"] = (*reward["functions"], f"{REWARD}:letters")
    reward["weights"] = (*reward["weights"], 1.0)
    return small


def _shrink_steps(small: dict[str, Any]) -> None:
    """Choose few prompts and completions; a step keeps up to four updates."""
    train, rollout, engine = small["train"], small["rollout"], small["engine"]
    updates = train["prompts_per_step"] // (engine["mini_batch_size"] or train["prompts_per_step"])
    prompts = PROMPTS * min(updates, 4)
    engine["mini_batch_size"] = PROMPTS
    train |= {"steps": STEPS, "prompts_per_step": prompts, "warmup_steps": 0}
    train |= {"checkpoint_every": 1, "keep_checkpoints": STEPS, "validation_prompts": HELD_OUT}
    train["validate_every"] = min(train["validate_every"], 1)
    rollout["num_generations"] = min(rollout["num_generations"], COMPLETIONS)
    rollout["max_tokens"] = min(rollout["max_tokens"], MAX_TOKENS)
