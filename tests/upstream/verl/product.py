"""grpoflow's commands with the real verl on a CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def command(*words: str) -> list[str]:
    """Return the command line of a command of grpoflow."""
    return [sys.executable, "-m", "pipeline.cli", *words]


def grpoflow(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory."""
    return subprocess.run(command(*words), capture_output=True, text=True, cwd=directory)


REWARD = '''"""A reward that the texts of a random model earn in different amounts."""


def letters(completions, solutions):
    return [sum("a" <= letter <= "m" for letter in text) / max(1, len(text)) for text in completions]
'''


def tiny_run(python: Path, directory: Path) -> list[str]:
    """Return the overrides of a run of two small steps with store and reward in `directory`."""
    (directory / "tiny_reward.py").write_text(REWARD)
    return [
        "engine=verl", "engine.device=cpu", f"engine.python={python}", "model=tiny_qwen3",
        "reward.functions=[tiny_reward:letters]", "reward.weights=[1.0]", f"store={directory / 'store'}",
        "train.steps=2", "train.prompts_per_step=4", "train.warmup_steps=0", "evaluate.num_prompts=32",
        "evaluate.sample_prompts=0",
    ]  # fmt: skip
