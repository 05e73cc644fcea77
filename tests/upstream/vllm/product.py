"""Runs of engine=verl whose trained model is made up, so that only evaluate has to run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from pipeline.run.run import prepare_plan
from stages.export.stage import make_usable
from stages.grpo.data import Prompts, Vocabulary, read_prompts
from tests.pipeline.artifacts import commit_spec
from tests.upstream.verl.product import grpoflow

PROMPTS, SAMPLE_PROMPTS, SAMPLES, MAX_TOKENS = 200, 24, 4, 12
SHAPE = (
    "model.hidden_size=128", "model.intermediate_size=256", "model.vocab_size=512",
    "model.initializer_range=0.25",
    "dataset.train_rows=64", f"dataset.test_rows={PROMPTS}", f"rollout.max_tokens={MAX_TOKENS}",
)  # fmt: skip
"""A small model whose answers differ from prompt to prompt. vLLM on a CPU has no heads of 16 elements."""
ASKED = (
    f"evaluate.sample_prompts={SAMPLE_PROMPTS}", f"evaluate.num_samples={SAMPLES}", "evaluate.k=2",
    "evaluate.batch_prompts=64", f"evaluate.logged_samples={PROMPTS}",
)  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A store in which only evaluate and report are missing."""

    directory: Path
    overrides: tuple[str, ...]

    @property
    def store(self) -> Path:
        """The store's directory."""
        return self.directory / "store"

    def evaluate(self, *overrides: str, force: bool = False) -> Path:
        """Run evaluate, again if `force`, and return its artifact."""
        options = ["--until", "evaluate", *(["--force", "evaluate"] if force else [])]
        done = grpoflow(self.directory, "run", *options, *self.overrides, *overrides)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        planned, store = prepare_plan([*self.overrides, *overrides])
        return store.path(planned.spec("evaluate").key)

    def artifact(self, stage: str) -> Path:
        """Return the only artifact of a stage."""
        (path,) = (self.store / stage).iterdir()
        return path

    def prompts(self) -> tuple[Prompts, Vocabulary]:
        """Return the held-out prompts, and the vocabulary of the model."""
        fetched, (planned, _) = self.artifact("fetch"), prepare_plan([*self.overrides])
        vocabulary = Vocabulary.read(fetched, planned.config.model)
        return read_prompts(self.artifact("tokenize") / "test.mindrecord", vocabulary), vocabulary


def prepare(
    directory: Path, python: Path, *overrides: str, shape: Sequence[str] = (*SHAPE, *ASKED)
) -> Prepared:
    """Fill a store: a random model before grpo, and the same with noise after it."""
    directory.mkdir(exist_ok=True)
    run = Prepared(
        directory,
        (
            "engine=verl", "engine.device=cpu", f"engine.python={python}", f"store={directory / 'store'}",
            *shape, *overrides,
        ),
    )  # fmt: skip
    done = grpoflow(directory, "run", "--until", "tokenize", *run.overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    planned, store = prepare_plan(run.overrides)
    commit_spec(store, planned.spec("grpo"), {})
    fetched, trained = store.path(planned.spec("fetch").key), directory / "trained"
    shutil.copytree(fetched, trained, ignore=shutil.ignore_patterns("manifest.json", "result.json"))
    (file,) = fetched.glob("*.safetensors")
    noise = np.random.default_rng(1)
    tensors = {
        name: values + 0.1 * values.std() * noise.standard_normal(values.shape, np.float32)
        for name, values in load_file(file).items()
    }
    (trained / file.name).unlink()
    save_file(tensors, trained / file.name, {"format": "pt"})
    make_usable(planned.spec("export").config, {"fetch": fetched}, trained)
    files = {
        path.relative_to(trained).as_posix(): path.read_bytes()
        for path in trained.rglob("*")
        if path.is_file()
    }
    commit_spec(store, planned.spec("export"), files)
    return run


def samples(artifact: Path) -> list[dict[str, Any]]:
    """Return the rows of an evaluation's samples.jsonl."""
    return [
        json.loads(line) for line in (artifact / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def result(artifact: Path) -> dict[str, Any]:
    """Return an artifact's result.json."""
    values: dict[str, Any] = json.loads((artifact / "result.json").read_text(encoding="utf-8"))
    return values
