"""Configuration of datasets, and which of the user's files a config makes the stages read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from stages.errors import Problem
from stages.model_config import ModelConfig

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
MODEL_FILES = ("config.json", "generation_config.json", *TOKENIZER_FILES)
SINGLE_WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class ColumnsConfig:
    """Keys of a JSON row."""

    prompt: str
    """Key of the question."""
    answer: str
    """Key of the worked or bare answer."""


@dataclass(frozen=True)
class ArithConfig:
    """The built-in addition problems; mix and sizes are what a 1 M parameter model was measured to learn."""

    min_addends: Annotated[int, Ge(2), Le(9)]
    """Fewest numbers (1 to 9 each) to add in one question."""
    max_addends: Annotated[int, Ge(2), Le(9)]
    """Most numbers to add in one question."""
    worked_share: Annotated[float, Ge(0), Le(1)]
    """Share of answers worked line by line; the others are the bare result. The mix gives GRPO a choice."""


@dataclass(frozen=True)
class DatasetConfig:
    """One dataset of questions with checkable answers."""

    name: str
    """Short name, for reports."""
    source: Literal["builtin", "local"]
    """builtin: generated from the seed; local: the user's JSON lines at `path`."""
    path: str | None
    """Directory with train.jsonl and test.jsonl, or the training file (then test_path is needed)."""
    test_path: str | None
    """Held-out file; None: test.jsonl in the directory `path`."""
    columns: ColumnsConfig
    solution: Literal["after_marker", "answer", "prompt_and_answer"]
    """What the ground truth is: the text after the last "#### " (gsm8k), the whole answer (openR1math),
    or question and answer together. The three are rlhf_data.py's dataset types."""
    train_rows: Annotated[int, Ge(1)] | None
    """Training rows to generate, or to use of the file (the first ones); None: all of the file."""
    test_rows: Annotated[int, Ge(1)] | None
    """Held-out rows, likewise."""
    max_bad_share: Annotated[float, Ge(0), Le(1)]
    """Share of blank or malformed lines that is skipped (and listed); above it the stage fails. 0: none."""
    arith: ArithConfig | None
    """Set for the built-in problems only."""


def check_dataset(config: DatasetConfig, path: str = "dataset") -> list[Problem]:
    """Every cross-field rule that `config` breaks; looks at no file."""
    problems = []
    if config.source == "local" and config.path is None:
        remedy = f"set {path}.path=DIRECTORY with train.jsonl and test.jsonl"
        problems.append(Problem(f"{path}.path", None, f"is required when {path}.source=local", remedy))
    if config.source == "builtin":
        problems += _check_builtin(config, path)
    return problems


def _check_builtin(config: DatasetConfig, path: str) -> list[Problem]:
    problems = []
    if config.arith is None:
        problems.append(Problem(f"{path}.arith", None, f"is required when {path}.source=builtin"))
    elif config.arith.min_addends > config.arith.max_addends:
        rule = f"must not exceed {path}.arith.max_addends={config.arith.max_addends}"
        problems.append(Problem(f"{path}.arith.min_addends", config.arith.min_addends, rule))
    for name, value in (("train_rows", config.train_rows), ("test_rows", config.test_rows)):
        if value is None:
            problems.append(Problem(f"{path}.{name}", None, f"is required when {path}.source=builtin"))
    for name, text in (("path", config.path), ("test_path", config.test_path)):
        if text is not None:
            remedy = f"set {path}.source=local (or choose dataset=gsm8k) to read files"
            problems.append(Problem(f"{path}.{name}", text, f"is ignored when {path}.source=builtin", remedy))
    return problems


def split_files(config: DatasetConfig) -> tuple[Path, Path]:
    """The user's (train, test) files of a local dataset, whether or not they exist."""
    root = Path(config.path or "")
    train = root / "train.jsonl" if root.is_dir() else root
    test = Path(config.test_path) if config.test_path else train.parent / "test.jsonl"
    return train, test


def external_files(config: ModelConfig | DatasetConfig) -> tuple[Path, ...]:
    """The user's files whose content decides what fetch (a model) or fetch_dataset (a dataset) produces.

    Only paths are listed, in a fixed order; nothing is opened. Missing files are left out for a model
    (the stage reports them) and kept for a dataset (both are needed).
    """
    if isinstance(config, DatasetConfig):
        return split_files(config) if config.source == "local" and config.path else ()
    files: list[Path] = []
    if config.source == "local" and config.path:
        root = Path(config.path)
        files += [root / name for name in (*MODEL_FILES, WEIGHTS_INDEX)]
        files += sorted(root.glob("*.safetensors"))
    if config.tokenizer_path:
        files += [Path(config.tokenizer_path) / name for name in TOKENIZER_FILES]
    return tuple(file for file in files if file.is_file())
