"""The environment of AReaL, a model whose tokens are single characters, and runs that tests share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.programs import ask, run
from tests.upstream.verl.product import REWARD, SHAPE, grpoflow

PREPARE = Path(__file__).parents[1] / "verl" / "prepare.py"
ORACLE, DIGESTS = (Path(__file__).with_name(f"{name}.py") for name in ("oracle", "digests"))
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

    def equals_torch(self, artifact: Path, rel: float = 1e-4, **more: Any) -> Any:
        """Check gradient norms, rewards, ages and weights of a run; return what the oracle says of it.

        `more` are keys of the oracle's request that differ from the defaults here.
        """
        request = {"artifact": str(artifact), "model": str(self.data / "model"), "kl_in_reward": 0.0}
        request |= {"correction": None, "learning_rate": LEARNING_RATE, "steps": STEPS}
        request |= {"max_tokens": MAX_TOKENS, **more}
        expected = ask(self.python, ORACLE, request)
        rows = metrics(artifact)
        assert [row["step"] for row in rows] == list(range(1, request["steps"] + 1))
        for row, step in zip(rows, expected["steps"], strict=True):
            assert row["grad_norm"] == pytest.approx(step["norm"], rel=rel)
            assert row["reward"] == pytest.approx(step["reward"], rel=1e-5)
            shares = {key.rpartition("/")[2]: row[key] for key in row if key.startswith("staleness_share/")}
            known = {age: share for age, share in shares.items() if share}
            assert known == {age: count / step["tokens"] for age, count in step["ages"].items()}
        assert expected["difference"] < 5e-5 < 5e-3 < expected["moved"]
        return expected

    def digests(self, *directories: Path) -> list[str]:
        """Return the digests of checkpoints and models."""
        found: list[str] = json.loads(run(self.python, DIGESTS, *directories)[-1])
        return found


def metrics(artifact: Path) -> list[dict[str, Any]]:
    """Return the metrics of each step by grpoflow's names."""
    return [json.loads(line) for line in (artifact / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def areal(interpreter, tmp_path_factory):
    data = tmp_path_factory.mktemp("areal_data")
    python = interpreter("areal")
    run(python, PREPARE, data, json.dumps(SHAPE))
    return Areal(python, data)
