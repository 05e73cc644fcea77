"""Configuration of datasets, its rules, and the user's files that the stages read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from stages.base.bounds import Positive, Share
from stages.base.errors import Problem
from stages.base.identity import NotInIdentity
from stages.base.rules import Broken, Rules, Test, at_least, at_most, be, given
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
    solution: Literal["after_marker", "answer", "prompt_and_answer"]
    """Ground truth: the text after the last "#### " (gsm8k), the whole answer (openR1math),
    or question and answer together. The three are rlhf_data.py's dataset types."""
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


def _is_from(source: str) -> Callable[..., bool]:
    return lambda config, *item: config.source == source


def _follows(sources: Mapping[str, str], otherwise: str | None) -> Test:
    """Require the source of the first key that is set; keys of other sources would be ignored."""

    def test(source: str, config: DatasetConfig | ModelConfig) -> Broken:
        """Require the source of the first key that is set."""
        implied = next((name for key, name in sources.items() if getattr(config, key)), otherwise)
        if source == implied:
            return None
        rule = f"must be {implied or 'null'}: the first of {', '.join(sources)} that is set decides"
        return rule, f"set it to {implied or 'null'}, or set the key of source={source} alone"

    return test


DATASET = Rules[DatasetConfig]("dataset", "ours: stages/fetch")
"""Rules that read no file."""
DATASET.must(
    "dataset.source",
    _follows({"path": "local", "hub": "modelscope", "files": "url", "arith": "builtin"}, None),
)
DATASET.must(
    "dataset.test_path",
    be(None, "only the files of dataset.path have it", "give dataset.path"),
    when=lambda config: config.source != "local",
)
DATASET.must(
    "dataset.arith.min_addends",
    at_most("dataset.arith.max_addends"),
    when=lambda config: config.source == "builtin" and config.arith is not None,
)
DATASET.must(
    "dataset.{}",
    given("is required when dataset.source=builtin", "set it to the number of rows"),
    name="builtin_rows",
    each=("train_rows", "test_rows"),
    when=_is_from("builtin"),
)
DATASET.must(
    "dataset.files",
    given("is required when dataset.source=modelscope", "see conf/dataset/deepscaler.yaml"),
    when=_is_from("modelscope"),
)
DATASET.must("dataset.files.{}.name", url_fault, RECORDED, each=_splits, when=_is_from("url"))
DATASET.must("dataset.files.{}.sha256", digest_fault, each=_splits, when=_is_from("url"))
DATASET.must(
    "dataset.files.{}.sha256",
    be(None, "the repository lists the digests", "set dataset.hub.revision to a commit or tag"),
    name="listed_digest",
    each=_splits,
    when=_is_from("modelscope"),
)
DATASET.must(
    "dataset.test_rows",
    given("is required where the source has no held-out file: so many rows are held out", "set it to 1000"),
    when=lambda config: config.source in ("url", "modelscope") and _splits(config) == ["train"],
)

MODEL = Rules[ModelConfig]("model", "ours: stages/fetch")
"""Rules about a model's source; they read no file."""
MODEL.must("model.source", _follows({"path": "local", "hub": "modelscope"}, "builtin"))
MODEL.must(
    "model.vocab_size",
    at_least(259, why="256 bytes and the special tokens"),
    when=lambda config: config.source == "builtin" and config.tokenizer_path is None,
)


for _table, _section, _key, _fault, _value in (
    (DATASET, "dataset", "id", id_fault, None),
    (DATASET, "dataset", "revision", revision_fault, None),
    (MODEL, "model", "id", id_fault, lambda config: config.hub_id),  # follows from base and instruct
    (MODEL, "model", "revision", revision_fault, None),
):
    _table.must(
        f"{_section}.hub.{_key}",
        _fault,
        "ModelScope's are of this form",
        when=lambda config, *_: config.source == "modelscope" and config.hub is not None,
        value=_value,
    )


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
