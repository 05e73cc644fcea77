"""Configuration of datasets, its rules, and the user's files that the stages read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from stages.base.bounds import Positive, Share
from stages.base.checks import at_least, at_most
from stages.base.errors import Problem
from stages.base.identity import NotInIdentity
from stages.fetch.sources import (
    MOVING,
    RECORDED,
    FileConfig,
    FilesConfig,
    RepositoryConfig,
    digest_fault,
    id_fault,
    revision_fault,
    url_fault,
)
from stages.models.config import ModelConfig

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
TEMPLATE = "chat_template.jinja"
"""Chat template that transformers saved apart from the tokenizer's settings."""
BASE_TEMPLATE = "base_chat_template.jinja"
"""Chat template of an exported model's base; training the exported model further renders with it."""
TOKENIZER_AND_TEMPLATE = (*TOKENIZER_FILES, TEMPLATE, BASE_TEMPLATE)
MODEL_FILES = ("config.json", "generation_config.json", *TOKENIZER_AND_TEMPLATE)
UNREAD_OF_FILES = (
    "name", "max_position_embeddings", "initializer_range", "bos_token_id", "eos_token_id", "pad_token_id",
    "torch_dtype", "param_init_type", "qkv_concat",
)  # fmt: skip
"""Keys of the model section that fetch ignores for a model with files of its own."""
DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz")
"""Suffixes of dataset files in lower case, in the order of preference in a directory."""


@dataclass(frozen=True)
class ColumnsConfig:
    """Keys of a JSON row."""

    prompt: str
    """Key of the question."""
    answer: str
    """Key of the worked or bare answer."""


@dataclass(frozen=True)
class ArithConfig:
    """The built-in addition problems; a model with 1 M parameters can learn the defaults."""

    min_addends: Annotated[int, Ge(2), Le(9)]
    """Fewest numbers (1 to 9 each) to add in one question."""
    max_addends: Annotated[int, Ge(2), Le(9)]
    """Most numbers to add in one question."""
    worked_share: Share
    """Share of answers worked line by line; the others are the bare result. The mix gives GRPO a choice."""


@dataclass(frozen=True)
class DatasetConfig:
    """One dataset of questions with checkable answers."""

    name: str
    """Short name, for reports."""
    source: Literal["builtin", "local", "url", "modelscope"]
    """builtin: generated from the seed; local: the user's files at `path`; url, modelscope: `files`.
    null in a YAML file: what follows from the keys (a path before a hub before files)."""
    path: Annotated[str | None, NotInIdentity()]
    """Directory with train.jsonl and test.jsonl (or .json, .parquet, .jsonl.gz, .json.gz), or with the shards
    train-00000-of-00002.parquet and so on, there or in its directory data; or the training file."""
    test_path: Annotated[str | None, NotInIdentity()]
    """Held-out file; None: test.jsonl, or its shards, in the directory of the training files."""
    hub: RepositoryConfig | None
    """The repository on ModelScope that `files` are in (source=modelscope)."""
    files: FilesConfig | None
    """Files to fetch for each split (source=url or modelscope)."""
    columns: ColumnsConfig
    solution: Literal["after_marker", "answer", "prompt_and_answer", "none"]
    """Ground truth: the text after the last "#### " (gsm8k), the whole answer (openR1math),
    or question and answer together. The three are rlhf_data.py's dataset types. none: examples or text for
    supervised training alone (engine=supervised), of any form that tokenize.kind reads."""
    train_rows: Positive | None
    """Training rows to generate, or to use of the file (the first ones); None: all of the file."""
    test_rows: Positive | None
    """Held-out rows to generate or use; None: all of the file."""
    max_bad_share: Share
    """Share of a split's rows that may be left out (and are listed): blank, malformed, without a ground
    truth, or with a prompt or ground truth that is too long. Above it the stage fails. 0: none."""
    arith: ArithConfig | None
    """Set for the built-in problems only."""


def remote_files(config: DatasetConfig) -> list[tuple[str, FileConfig]]:
    """Return (split, file) of a dataset that is fetched."""
    if config.files is None:
        return []
    pairs = (("train", config.files.train), ("test", config.files.test))
    return [(split, file) for split, file in pairs if file is not None]


def _splits(config: DatasetConfig) -> list[str]:
    return [split for split, _ in remote_files(config)]


def _source_problems(
    section: str, source: str, chosen: Mapping[str, tuple[object, str]], otherwise: str | None
) -> Iterator[Problem]:
    """Yield a problem unless the source is that of the first key that is set; others would be ignored.

    `chosen`: key -> its value, and the source that it stands for.
    """
    implied = next((name for value, name in chosen.values() if value), otherwise)
    if source == "local" and implied == otherwise:  # no key is set
        rule = f"is required: nothing says where the {section} comes from"
        yield Problem(f"{section}.path", None, rule, f"give {section}.path=DIR", "ours: stages/fetch")
    elif source != implied:
        rule = f"must be {implied or 'null'}: the first of {', '.join(chosen)} that is set decides"
        remedy = f"set it to {implied or 'null'}, or set the key of source={source} alone"
        yield Problem(f"{section}.source", source, rule, remedy, "ours: stages/fetch")


def _hub_problems(section: str, id: str | None, revision: str) -> Iterator[Problem]:
    """Yield problems of a repository on ModelScope."""
    source = "ModelScope's are of this form"
    if id is not None and (fault := id_fault(id)):
        yield Problem(f"{section}.hub.id", id, *fault, source)
    if fault := revision_fault(revision):
        yield Problem(f"{section}.hub.revision", revision, *fault, source)


def dataset_problems(config: DatasetConfig) -> Iterator[Problem]:
    """Yield problems of the section dataset; reads no file."""
    ours, source = "ours: stages/fetch", config.source
    chosen = {
        "path": (config.path, "local"),
        "hub": (config.hub, "modelscope"),
        "files": (config.files, "url"),
        "arith": (config.arith, "builtin"),
    }
    yield from _source_problems("dataset", source, chosen, None)
    if source != "local" and config.test_path is not None:
        rule, remedy = "must be null: only the files of dataset.path have it", "give dataset.path"
        yield Problem("dataset.test_path", config.test_path, rule, remedy, ours)
    if source == "builtin" and config.arith is not None:
        path, least, most = "dataset.arith.min_addends", config.arith.min_addends, config.arith.max_addends
        yield from at_most(path, least, most, "dataset.arith.max_addends", "", ours)
    if source == "builtin":
        for key, rows in (("train_rows", config.train_rows), ("test_rows", config.test_rows)):
            if rows is None:
                rule, remedy = "is required when dataset.source=builtin", "set it to the number of rows"
                yield Problem(f"dataset.{key}", None, rule, remedy, ours)
    if source == "modelscope":
        if config.files is None:
            rule, remedy = "is required when dataset.source=modelscope", "see conf/dataset/deepscaler.yaml"
            yield Problem("dataset.files", None, rule, remedy, ours)
        if config.hub is not None:
            yield from _hub_problems("dataset", config.hub.id, config.hub.revision)
    if source in ("url", "modelscope"):
        yield from _file_problems(config)


def _file_problems(config: DatasetConfig) -> Iterator[Problem]:
    """Yield problems of the files of a dataset that is fetched."""
    ours, files = "ours: stages/fetch", remote_files(config)
    for split, file in files:
        path = f"dataset.files.{split}"
        if config.source == "modelscope" and file.sha256 is not None:
            rule = "must be null: the repository lists the digests"
            remedy = "set dataset.hub.revision to a commit or tag"
            yield Problem(f"{path}.sha256", file.sha256, rule, remedy, ours)
        if config.source == "url":
            if address := url_fault(file.name):
                rule, remedy, shown = address
                yield Problem(f"{path}.name", shown, rule, remedy, RECORDED)
            if fault := digest_fault(file.sha256):
                yield Problem(f"{path}.sha256", file.sha256, *fault, ours)
    if [split for split, _ in files] == ["train"] and config.test_rows is None and config.solution != "none":
        rule = "is required where the source has no held-out file: so many rows are held out"
        yield Problem("dataset.test_rows", None, rule, "set it to 1000", ours)


def model_problems(config: ModelConfig) -> Iterator[Problem]:
    """Yield problems of a model's source; reads no file."""
    chosen = {"path": (config.path, "local"), "hub": (config.hub, "modelscope")}
    yield from _source_problems("model", config.source, chosen, "builtin")
    if config.source == "builtin" and config.tokenizer_path is None:
        why = "256 bytes and the special tokens"
        yield from at_least("model.vocab_size", config.vocab_size, 259, "", why, "ours: stages/fetch")
    if config.source == "modelscope" and config.hub is not None:
        yield from _hub_problems("model", config.hub_id, config.hub.revision)  # base and instruct name it


def source_warnings(model: ModelConfig, dataset: DatasetConfig) -> list[Problem]:
    """Return a warning for each source whose content may change over time."""
    problems = []
    hubs = (("model", model, model.hub_id), ("dataset", dataset, dataset.hub and dataset.hub.id))
    for name, section, id in hubs:
        if section.source == "modelscope" and section.hub and section.hub.revision in MOVING:
            path, rule = f"{name}.hub.revision", f"is a branch of {id}, whose content may change"
            rule += "; fetch records what it gets in its result.json"
            problems.append(Problem(path, section.hub.revision, rule, "set a commit or tag to pin it"))
    if dataset.source == "url":
        for split, file in remote_files(dataset):
            if file.sha256 is None:
                path, rule = f"dataset.files.{split}.sha256", "is not set, so any content is accepted"
                problems.append(Problem(path, None, rule, "set it to pin the file"))
    return problems


def licence_files(model: ModelConfig) -> tuple[Path, ...]:
    """Return the licence files of the user's Hugging Face directory, and its model card."""
    if model.source != "local" or not model.path:
        return ()
    names = ("README.md", "LICENSE*", "LICENCE*", "NOTICE*")
    files = {file for name in names for file in Path(model.path).glob(name) if file.is_file()}
    return tuple(sorted(files))
