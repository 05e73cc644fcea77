"""The environment of AReaL, a model whose tokens are single characters, and runs that tests share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.programs import run
from tests.upstream.verl.product import REWARD, SHAPE, grpoflow

PREPARE = Path(__file__).parents[1] / "verl" / "prepare.py"
STEPS, PROMPTS, GENERATIONS, MAX_TOKENS, LEARNING_RATE = 3, 4, 4, 8, 3e-3
SMALL = (
    "engine=areal", "engine.device=cpu", "model.source=local", "model.rope_theta=10000.0", "dataset=gsm8k",
    "dataset.solution=answer", "dataset.test_rows=4", "tokenize.chat_template=false",
    "tokenize.prompt_suffix='='", "tokenize.max_prompt_length=16", "tokenize.sft_length=32",
    "reward.functions=[tiny_reward:digits]", "reward.weights=[1.0]", f"rollout.max_tokens={MAX_TOKENS}",
    f"rollout.num_generations={GENERATIONS}", f"train.prompts_per_step={PROMPTS}", f"train.steps={STEPS}",
    f"train.learning_rate={LEARNING_RATE}", "train.schedule=constant", "train.warmup_steps=0",
    "train.adam_beta2=0.999", "train.weight_decay=0.0", "train.checkpoint_every=1", "train.epsilon_high=0.28",
    f"train.logged_completions={PROMPTS * GENERATIONS}", "evaluate.num_prompts=4",
    "evaluate.sample_prompts=0",
)  # fmt: skip


@dataclass(frozen=True)
class Areal:
    """AReaL's interpreter, and a directory with model and prompts."""

    python: Path
    data: Path

    def overrides(self, directory: Path, *more: str) -> list[str]:
        """Return the overrides of a run with the store in a directory."""
        (directory / "tiny_reward.py").write_text(REWARD)
        shape = [f"model.{key}={value}" for key, value in SHAPE.items()]
        vocabulary = len(json.loads((self.data / "model/tokenizer.json").read_text())["model"]["vocab"])
        places = [f"store={directory / 'store'}", f"model.path={self.data / 'model'}"]
        places += [f"dataset.path={self.data / 'prompts.jsonl'}", f"engine.python={self.python}"]
        return [*SMALL, *shape, f"model.vocab_size={vocabulary}", *places, *more]

    def train(self, directory: Path, *more: str, until: str = "grpo") -> Path:
        """Run grpoflow; return the artifact of grpo."""
        done = grpoflow(directory, "run", "--until", until, *self.overrides(directory, *more))
        assert done.returncode == 0, done.stderr[-3000:]
        (artifact,) = (directory / "store" / "grpo").iterdir()
        return artifact


def metrics(artifact: Path) -> list[dict[str, Any]]:
    """Return the metrics of each step by grpoflow's names."""
    return [json.loads(line) for line in (artifact / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def areal(interpreter, tmp_path_factory):
    data = tmp_path_factory.mktemp("areal_data")
    python = interpreter("areal")
    run(python, PREPARE, data, json.dumps(SHAPE))
    return Areal(python, data)
