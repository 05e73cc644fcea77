"""grpoflow's commands with the real verl on a CPU, and what its runs leave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REWARD = '''"""Rewards that the texts of a random model earn in different amounts."""


def letters(completions, solutions):
    return [sum("a" <= letter <= "m" for letter in text) / max(1, len(text)) for text in completions]


def digits(completions, solutions):
    return [sum(map(str.isdigit, text)) / max(1, len(text)) for text in completions]
'''
STEPS, EPOCHS, MAX_TOKENS, BETA, LEARNING_RATE = 3, 2, 8, 0.05, 3e-3
PROMPTS, GENERATIONS = 4, 4
SHAPE = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64, "initializer_range": 0.3,
}  # fmt: skip
"""Shape of the model that prepare.py writes."""
SMALL = (
    "model.rope_theta=10000.0", "dataset=gsm8k", "dataset.solution=answer", "dataset.test_rows=4",
    "tokenize.chat_template=false", "tokenize.prompt_suffix='='", "tokenize.max_prompt_length=16",
    "tokenize.sft_length=32", "reward.functions=[tiny_reward:digits]", f"rollout.max_tokens={MAX_TOKENS}",
    f"rollout.num_generations={GENERATIONS}", f"train.prompts_per_step={PROMPTS}", f"train.steps={STEPS}",
    f"train.num_iterations={EPOCHS}", f"train.beta={BETA}", f"train.learning_rate={LEARNING_RATE}",
    "train.schedule=constant", "train.adam_beta2=0.999", f"train.logged_completions={PROMPTS * GENERATIONS}",
)  # fmt: skip
"""Overrides of a run whose steps are repeated in plain torch."""


def command(*words: str) -> list[str]:
    """Return the command line of a command of grpoflow."""
    return [sys.executable, "-m", "pipeline.cli", *words]


def grpoflow(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory."""
    return subprocess.run(command(*words), capture_output=True, text=True, cwd=directory)


def tiny_run(python: Path, directory: Path) -> list[str]:
    """Return the overrides of a run of two small steps with store and reward in `directory`."""
    (directory / "tiny_reward.py").write_text(REWARD)
    return [
        "engine=verl", "engine.device=cpu", f"engine.python={python}", "model=tiny_qwen3",
        "reward.functions=[tiny_reward:letters]", "reward.weights=[1.0]", f"store={directory / 'store'}",
        "train.steps=2", "train.prompts_per_step=4", "train.warmup_steps=0", "evaluate.num_prompts=32",
        "evaluate.sample_prompts=0",
    ]  # fmt: skip


def warm_start(directory: Path, store: Path) -> Path:
    """Train tiny_qwen3 with engine=local until sft; return the exported model."""
    local = ["engine=local", "model=tiny_qwen3", "layout=dp1_mp1_pp1", f"store={store}"]
    done = grpoflow(directory, "run", "--until", "sft", *local)
    assert done.returncode == 0, done.stderr[-3000:]
    ((sft,), (fetched,)) = ((store / stage).iterdir() for stage in ("sft", "fetch"))
    start = directory / "start"
    done = grpoflow(directory, "weights", "export", str(sft / "train" / "rank_0"), str(fetched), str(start))
    assert done.returncode == 0, done.stderr[-3000:]
    return start


@dataclass(frozen=True)
class Run:
    """A finished run in the store of a directory."""

    directory: Path

    @property
    def grpo(self) -> Path:
        """The artifact with weights and completions."""
        (artifact,) = (self.directory / "store" / "grpo").iterdir()
        return artifact

    def metrics(self) -> list[dict[str, Any]]:
        """Return verl's metrics of each step."""
        (file,) = self.directory.glob("store/.logs/grpo-*/attempt_1/metrics.jsonl")
        return [json.loads(line)["data"] for line in file.read_text().splitlines()]

    def warnings(self) -> str:
        """Return the warnings of the grpo stage."""
        (file,) = self.directory.glob("store/.logs/grpo-*/warnings.txt")
        return file.read_text()

    def completions(self) -> list[list[tuple[Any, ...]]]:
        """Return prompt, completion and reward of each step, in an order that does not depend on the run."""
        rows = [json.loads(line) for line in (self.grpo / "completions.jsonl").read_text().split("\n")[:-1]]
        names = ("prompt", "completion", "reward")
        return [
            sorted(tuple(row[name] for name in names) for row in rows if row["step"] == step)
            for step in range(1, STEPS + 1)
        ]


@dataclass(frozen=True)
class Verl:
    """verl's interpreter, a model whose tokens are single characters, and prompts."""

    python: Path
    data: Path
    shape: Mapping[str, Any] = field(default_factory=lambda: SHAPE)

    def train(self, directory: Path, *overrides: str, until: str = "grpo") -> Run:
        """Run grpoflow with the model in a store of its own, in a directory that may be new."""
        directory.mkdir(exist_ok=True)
        model = [f"model.{key}={value}" for key, value in self.shape.items()]
        vocabulary = len(json.loads((self.data / "model/tokenizer.json").read_text())["model"]["vocab"])
        model += ["model.source=local", f"model.path={self.data / 'model'}", f"model.vocab_size={vocabulary}"]
        data = f"dataset.path={self.data / 'prompts.jsonl'}"
        words = [*tiny_run(self.python, directory), *model, data, *SMALL, *overrides]
        done = grpoflow(directory, "run", "--until", until, *words)
        assert done.returncode == 0, done.stderr[-3000:]
        return Run(directory)
