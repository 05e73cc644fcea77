"""Configuration of datasets, and which of the user's files a config makes the stages read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from stages.base.errors import Problem
from stages.base.identity import NotInIdentity
from stages.fetch.sources import (
    FileConfig,
    FilesConfig,
    RepositoryConfig,
    check_digest,
    check_repository,
    check_url,
    moving,
)
from stages.models.config import ModelConfig

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
TOKENIZER_AND_TEMPLATE = (*TOKENIZER_FILES, "chat_template.jinja")
"""The last holds the chat template where transformers has saved it apart from the settings."""
MODEL_FILES = ("config.json", "generation_config.json", *TOKENIZER_AND_TEMPLATE)
SINGLE_WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
UNREAD_OF_FILES = (
    "name",
    "max_position_embeddings",
    "initializer_range",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "torch_dtype",
    "param_init_type",
    "qkv_concat",
)
"""Keys of the model section that fetch does not look at where the model's own files hold them."""
SMALLEST_VOCAB = 259
"""Ids of a tokenizer that knows the 256 bytes and three special tokens, and nothing else."""
DATA_SUFFIXES = (".jsonl", ".json", ".parquet")


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
    source: Literal["builtin", "local", "url", "modelscope"]
    """builtin: generated from the seed; local: the user's files at `path`; url, modelscope: `files`.
    null in a YAML file: local when there is a path, else modelscope when there is a hub, else url."""
    path: Annotated[str | None, NotInIdentity()]
    """Directory with train.jsonl and test.jsonl (or .json, .parquet), or the training file."""
    test_path: Annotated[str | None, NotInIdentity()]
    """Held-out file; None: test.jsonl (or .json, .parquet) in the same directory."""
    hub: RepositoryConfig | None
    """The repository on ModelScope that `files` are in (source=modelscope)."""
    files: FilesConfig | None
    """What to fetch for each split (source=url or modelscope)."""
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
    elif config.source != "local":
        problems += _check_remote(config, path)
    return problems


def _check_remote(config: DatasetConfig, path: str) -> list[Problem]:
    if config.files is None:
        rule = f"is required when {path}.source={config.source}"
        return [Problem(f"{path}.files", None, rule, "give files.train.name, see conf/dataset/gsm8k.yaml")]
    problems = []
    if config.source == "modelscope":
        if config.hub is None:
            rule = f"is required when {path}.source=modelscope"
            problems.append(Problem(f"{path}.hub", None, rule, "give {id, revision}"))
        else:
            problems += check_repository(f"{path}.hub", config.hub.id, config.hub.revision)
    for split, file in remote_files(config):
        key = f"{path}.files.{split}"
        problems += check_url(f"{key}.name", file.name) if config.source == "url" else []
        problems += check_digest(f"{key}.sha256", file.sha256)
    if config.files.test is None and config.test_rows is None:
        rule = "is required where the source has no held-out file: so many last rows of train are held out"
        problems.append(Problem(f"{path}.test_rows", None, rule, "set it to 1000"))
    return problems + _check_ignored(config, path)


def remote_files(config: DatasetConfig) -> list[tuple[str, FileConfig]]:
    """(split, file) of a dataset that is fetched."""
    if config.files is None:
        return []
    pairs = (("train", config.files.train), ("test", config.files.test))
    return [(split, file) for split, file in pairs if file is not None]


def check_vocabulary(size: int, path: str = "model.vocab_size") -> list[Problem]:
    """Whether a tokenizer of at most so many ids can be trained."""
    if size >= SMALLEST_VOCAB:
        return []
    rule = f"must be at least {SMALLEST_VOCAB} (256 bytes and the special tokens)"
    return [Problem(path, size, rule, f"use {SMALLEST_VOCAB}, or more")]


def check_model(config: ModelConfig, path: str = "model") -> list[Problem]:
    """What is wrong with where a model comes from; looks at no file."""
    if config.source == "local" and config.path is None:
        remedy = "give a Hugging Face directory"
        return [Problem(f"{path}.path", None, f"is required with {path}.source=local", remedy)]
    if config.source != "local" and config.path is not None:
        rule = f"is ignored when {path}.source={config.source}"
        return [Problem(f"{path}.path", config.path, rule, f"set {path}.source=local")]
    if config.source == "builtin" and config.tokenizer_path is None:
        return check_vocabulary(config.vocab_size, f"{path}.vocab_size")
    if config.source != "modelscope":
        return []
    if config.hub is None:
        remedy = "give {base, instruct, id, revision}, or a directory as model.path"
        return [Problem(f"{path}.hub", None, f"is required with {path}.source=modelscope", remedy)]
    return check_repository(f"{path}.hub", config.hub_id, config.hub.revision)


def source_warnings(model: ModelConfig, dataset: DatasetConfig) -> list[Problem]:
    """What will be fetched from where it may change from one day to the next."""
    found = []
    if model.source == "modelscope" and model.hub is not None:
        found += moving("model.hub", model.hub_id, model.hub.revision)
    if dataset.source == "modelscope" and dataset.hub is not None:
        found += moving("dataset.hub", dataset.hub.id, dataset.hub.revision)
    if dataset.source == "url":
        for split, file in remote_files(dataset):
            if file.sha256 is None:
                rule = "is not known: whatever the address holds when it is fetched is kept, and recorded"
                found.append(Problem(f"dataset.files.{split}.sha256", None, rule, "set it to pin the file"))
    return found


def _check_builtin(config: DatasetConfig, path: str) -> list[Problem]:
    problems = []
    if config.arith is None:
        rule = f"is required when {path}.source=builtin"
        problems.append(Problem(f"{path}.arith", None, rule, "choose dataset=arith"))
    elif config.arith.min_addends > config.arith.max_addends:
        rule = f"must not exceed {path}.arith.max_addends={config.arith.max_addends}"
        remedy = f"use at most {config.arith.max_addends}"
        problems.append(Problem(f"{path}.arith.min_addends", config.arith.min_addends, rule, remedy))
    for name, value in (("train_rows", config.train_rows), ("test_rows", config.test_rows)):
        if value is None:
            rule = f"is required when {path}.source=builtin"
            problems.append(Problem(f"{path}.{name}", None, rule, "set it to the number of rows"))
    return problems + _check_ignored(config, path)


def _check_ignored(config: DatasetConfig, path: str) -> list[Problem]:
    """Paths beside another source: refused rather than ignored."""
    rule = f"is ignored when {path}.source={config.source}"
    remedy = f"set {path}.path and {path}.source=local to read files"
    named = (("path", config.path), ("test_path", config.test_path))
    return [Problem(f"{path}.{name}", text, rule, remedy) for name, text in named if text is not None]


def split_files(config: DatasetConfig) -> tuple[Path, Path | None]:
    """The user's (train, test) files of a local dataset, whether or not they exist.

    Without a held-out file beside it, and with test_rows set, test is None: rows of train are held out.
    """
    root = Path(config.path or "")
    train = split_in(root, "train") if root.is_dir() else root
    if config.test_path:
        return train, Path(config.test_path)
    test = split_in(train.parent, "test")
    return train, None if config.test_rows is not None and not test.is_file() else test


def split_in(root: Path, split: str) -> Path:
    """The split's file in a directory: .jsonl before .json before .parquet; .jsonl when there is none."""
    files = [root / f"{split}{suffix}" for suffix in DATA_SUFFIXES]
    return next((file for file in files if file.is_file()), files[0])


def external_files(config: ModelConfig | DatasetConfig) -> tuple[Path, ...]:
    """The user's files whose content decides what fetch (a model) or fetch_dataset (a dataset) produces.

    Only paths are listed, in a fixed order; nothing is opened. Missing files are left out for a model
    (the stage reports them) and kept for a dataset (both are needed).
    """
    if isinstance(config, DatasetConfig):
        found = split_files(config) if config.source == "local" and config.path else ()
        return tuple(file for file in found if file is not None)
    files: list[Path] = []
    if config.source == "local" and config.path:
        root = Path(config.path)
        files += [root / name for name in (*MODEL_FILES, WEIGHTS_INDEX)]
        files += sorted(root.glob("*.safetensors"))
    if config.tokenizer_path:
        files += [Path(config.tokenizer_path) / name for name in TOKENIZER_AND_TEMPLATE]
    return tuple(file for file in files if file.is_file())
