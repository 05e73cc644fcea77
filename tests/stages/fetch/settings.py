"""Sections of the configuration for the data stages' tests: the shipped YAML with changes."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.compose import compose
from pipeline.store.durable import settle
from stages.base.context import Context
from stages.base.reader import read
from stages.fetch.config import DatasetConfig
from stages.fetch.sources import FetchConfig, implied_source
from stages.models.config import ModelConfig
from stages.tokenize.config import TokenizeConfig
from tests.stages.weights.checkpoints import make_model

ROOT = Path(__file__).parents[3]
FIXTURE = ROOT / "tests" / "data" / "gsm8k"
SHARED = Path(os.environ.get("GRPOFLOW_SHARED", ROOT.parent / "shared"))
GSM8K = SHARED / "data" / "gsm8k"
QWEN = SHARED / "data" / "qwen2.5-tokenizer"

needs_shared = pytest.mark.skipif(not QWEN.is_dir(), reason="needs GSM8K and the Qwen2.5 tokenizer")


def values(group: str, name: str) -> dict[str, Any]:
    """Return a group of the configuration with one of its shipped choices as plain data."""
    return copy.deepcopy(_composed(group, name)[group])


@functools.cache
def _composed(group: str, name: str) -> dict[str, Any]:
    return compose([f"{group}={name}"])


def sourced(section: dict[str, Any]) -> dict[str, Any]:
    """The section with its source derived, as pipeline does."""
    implied = implied_source(section["path"], section["hub"], section.get("files"))
    return section if section["source"] else section | {"source": implied}


def fetch_values(**changes: Any) -> dict[str, Any]:
    """Defaults that look at no environment."""
    return values("fetch", "default") | {"cache_dir": None} | changes


def fetch(**changes: Any) -> FetchConfig:
    return read(FetchConfig, fetch_values(**changes))


def model_values(**changes: Any) -> dict[str, Any]:
    """A model small enough to write in milliseconds."""
    small = make_model(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24, vocab_size=512, max_position_embeddings=128, tie_word_embeddings=True,
        torch_dtype="float32", param_init_type="float32",
    )  # fmt: skip
    return dataclasses.asdict(small) | changes


def model(**changes: Any) -> ModelConfig:
    return read(ModelConfig, model_values(**changes))


def arith_values(**changes: Any) -> dict[str, Any]:
    return values("dataset", "arith") | {"train_rows": 300, "test_rows": 40} | changes


def gsm8k_values(path: str | None = str(FIXTURE), **changes: Any) -> dict[str, Any]:
    return sourced(values("dataset", "gsm8k") | {"path": path} | changes)


def dataset(**changes: Any) -> DatasetConfig:
    """The built-in problems, or gsm8k when a path is given."""
    return read(DatasetConfig, gsm8k_values(**changes) if "path" in changes else arith_values(**changes))


def tokenize(name: str = "arith", **changes: Any) -> TokenizeConfig:
    return read(TokenizeConfig, values("tokenize", name) | changes)


def context(directory: Path, stage: str, config: dict[str, Any], **inputs: Path) -> Context:
    """A context whose output is directory/stage; how to fetch is always in its config."""
    for name in (stage, f"{stage}.work"):
        (directory / name).mkdir(parents=True)
    return Context(
        stage=stage,
        config=json.loads(json.dumps({"fetch": fetch_values(), **config})),
        inputs=inputs,
        output=directory / stage,
        work=directory / f"{stage}.work",
        progress_file=directory / f"{stage}.progress",
    )


def write_lines(path: Path, *lines: object) -> Path:
    """JSON lines from objects; text is written as it stands."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def assert_separate(cache: Path, output: Path) -> None:
    """Check that an artifact shares no file with a user's cache, whose modes a commit leaves alone."""
    cached = [path for path in cache.rglob("*") if path.is_file()]
    modes = [path.stat().st_mode for path in cached]
    settle(output, "manifest.json", {})
    assert cached and [path.stat().st_mode for path in cached] == modes
    assert not {path.stat().st_ino for path in output.iterdir()} & {path.stat().st_ino for path in cached}
