"""Configuration of datasets, and which of the user's files a config makes the stages read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from stages.base.bounds import Positive, Share
from stages.base.errors import Problem
from stages.base.identity import NotInIdentity
from stages.base.rules import Broken, Rules, Test, at_least, at_most, required
from stages.fetch.sources import (
    FileConfig,
    FilesConfig,
    RepositoryConfig,
    digest_fault,
    id_fault,
    moving,
    revision_fault,
    url_fault,
)
from stages.models.config import ModelConfig
from stages.weights.index import INDEX_NAME, SINGLE_NAME, unused_index

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
TEMPLATE, BASE_TEMPLATE = "chat_template.jinja", "base_chat_template.jinja"
"""The chat template where transformers has saved it apart from the settings, and the one that an exported
model had before training's prompts decided it: who trains that model further renders with the latter."""
TOKENIZER_AND_TEMPLATE = (*TOKENIZER_FILES, TEMPLATE, BASE_TEMPLATE)
MODEL_FILES = ("config.json", "generation_config.json", *TOKENIZER_AND_TEMPLATE)
UNREAD_OF_FILES = (
    "name", "max_position_embeddings", "initializer_range", "bos_token_id", "eos_token_id", "pad_token_id",
    "torch_dtype", "param_init_type", "qkv_concat",
)  # fmt: skip
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
    worked_share: Share
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
    """Files to fetch for each split (source=url or modelscope)."""
    columns: ColumnsConfig
    solution: Literal["after_marker", "answer", "prompt_and_answer"]
    """Ground truth: the text after the last "#### " (gsm8k), the whole answer (openR1math),
    or question and answer together. The three are rlhf_data.py's dataset types."""
    train_rows: Positive | None
    """Training rows to generate, or to use of the file (the first ones); None: all of the file."""
    test_rows: Positive | None
    """Held-out rows, likewise."""
    max_bad_share: Share
    """Share of a split's rows that may be left out (and are listed): blank, malformed, without a ground
    truth, or with a prompt or ground truth that is too long. Above it the stage fails. 0: none."""
    arith: ArithConfig | None
    """Set for the built-in problems only."""


DATASET = Rules[DatasetConfig]("dataset", "ours: stages/fetch")
"""They look at no file."""


def _ignored(section: str, remedy: str) -> Test:
    """Refuse a value that the configured source would ignore."""

    def test(value: object, config: DatasetConfig | ModelConfig, *_: object) -> Broken:
        rule = f"is ignored when {section}.source={config.source}"
        return None if value is None else (rule, remedy, value if isinstance(value, str) else None)

    return test


def _of(*sources: str) -> Callable[..., bool]:
    return lambda config, *asked: config.source in sources


DATASET.must(
    "dataset.path",
    required("when dataset.source=local", "set dataset.path=DIRECTORY with train.jsonl and test.jsonl"),
    when=_of("local"),
)
DATASET.must(
    "dataset.{}",
    _ignored("dataset", "give dataset.path, and leave dataset.source out"),
    name="ignored",
    each=("path", "test_path"),
    when=_of("builtin", "url", "modelscope"),
)
DATASET.must(
    "dataset.{}",
    _ignored("dataset", "leave it out, or leave out dataset=arith, dataset.source and dataset.arith"),
    name="ignored_files",
    each=("hub", "files"),
    when=_of("builtin"),
)
DATASET.must(
    "dataset.hub",
    _ignored("dataset", "set dataset.source=modelscope"),
    name="ignored_hub",
    when=_of("url"),
)
DATASET.must(
    "dataset.arith", required("when dataset.source=builtin", "choose dataset=arith"), when=_of("builtin")
)
DATASET.must(
    "dataset.arith.min_addends",
    at_most("dataset.arith.max_addends"),
    when=lambda config: config.source == "builtin" and config.arith is not None,
)
DATASET.must(
    "dataset.{}",
    required("when dataset.source=builtin", "set it to the number of rows"),
    name="builtin_rows",
    each=("train_rows", "test_rows"),
    when=_of("builtin"),
)
DATASET.must(
    "dataset.files",
    required(
        "when dataset.source is url or modelscope", "give files.train.name, see conf/dataset/gsm8k.yaml"
    ),
    when=_of("url", "modelscope"),
)
DATASET.must(
    "dataset.hub", required("when dataset.source=modelscope", "give {id, revision}"), when=_of("modelscope")
)


def _files(config: DatasetConfig) -> list[str]:
    return [split for split, _ in remote_files(config)]


DATASET.must(
    "dataset.files.{}.name",
    lambda value, config, split: url_fault(value),
    "ours: configurations are recorded",
    each=_files,
    when=_of("url"),
)
DATASET.must(
    "dataset.files.{}.sha256",
    lambda value, config, split: digest_fault(value),
    each=_files,
    when=_of("url", "modelscope"),
)
DATASET.must(
    "dataset.test_rows",
    required("where the source has no held-out file: so many last rows are held out", "set it to 1000"),
    when=lambda config: config.source in ("url", "modelscope") and _files(config) == ["train"],
)


def remote_files(config: DatasetConfig) -> list[tuple[str, FileConfig]]:
    """(split, file) of a dataset that is fetched."""
    if config.files is None:
        return []
    pairs = (("train", config.files.train), ("test", config.files.test))
    return [(split, file) for split, file in pairs if file is not None]


MODEL = Rules[ModelConfig]("model", "ours: stages/fetch")
"""Rules about a model's source; they read no file."""
MODEL.must(
    "model.path", required("with model.source=local", "give a Hugging Face directory"), when=_of("local")
)
MODEL.must(
    "model.path",
    _ignored("model", "set model.source=local"),
    name="ignored_path",
    when=_of("builtin", "modelscope"),
)
MODEL.must(
    "model.hub",
    _ignored("model", "choose the model: model=qwen2_5_7b"),
    name="ignored_hub",
    when=_of("builtin"),
)
MODEL.must(
    "model.vocab_size",
    at_least(SMALLEST_VOCAB, why="256 bytes and the special tokens"),
    when=lambda config: config.source == "builtin" and config.tokenizer_path is None,
)
MODEL.must(
    "model.hub",
    required(
        "with model.source=modelscope", "give {base, instruct, id, revision}, or a directory as model.path"
    ),
    when=_of("modelscope"),
)


for _table, _section, _key, _fault, _value in (
    (DATASET, "dataset", "id", id_fault, None),
    (DATASET, "dataset", "revision", revision_fault, None),
    (MODEL, "model", "id", id_fault, lambda config: config.hub_id),  # follows from base and instruct
    (MODEL, "model", "revision", revision_fault, None),
):
    _table.must(
        f"{_section}.hub.{_key}",
        lambda value, config, fault=_fault: fault(value),
        "ModelScope's are of this form",
        when=_of("modelscope"),
        value=_value,
        unless=("hub",),
    )


def source_warnings(model: ModelConfig, dataset: DatasetConfig) -> list[Problem]:
    """Return a warning for each source whose content may change over time."""
    problems = []
    if model.source == "modelscope" and model.hub is not None:
        problems += moving("model.hub", model.hub_id, model.hub.revision)
    if dataset.source == "modelscope" and dataset.hub is not None:
        problems += moving("dataset.hub", dataset.hub.id, dataset.hub.revision)
    if dataset.source == "url":
        for split, file in remote_files(dataset):
            if file.sha256 is None:
                rule = "is not known: whatever the address holds when it is fetched is kept, and recorded"
                problems.append(
                    Problem(f"dataset.files.{split}.sha256", None, rule, "set it to pin the file")
                )
    return problems


def split_files(config: DatasetConfig) -> tuple[Path, Path | None]:
    """Return the user's (train, test) files of a local dataset, whether or not they exist.

    Without a held-out file beside it, and with test_rows set, test is None: rows of train are held out.
    """
    train, test = _files_at(config.path or "")
    if config.test_path:
        return train, Path(config.test_path)
    return train, None if config.test_rows is not None and not test.is_file() else test


def has_test_file(path: str, test_path: str | None) -> bool:
    """Return True if the user's dataset at `path` has a held-out file."""
    return test_path is not None or _files_at(path)[1].is_file()


def _files_at(path: str) -> tuple[Path, Path]:
    root = Path(path)
    train = split_in(root, "train") if root.is_dir() else root
    return train, split_in(train.parent, "test")


def split_in(root: Path, split: str) -> Path:
    """Return the split's file in a directory: .jsonl before .json before .parquet; default .jsonl."""
    files = [root / f"{split}{suffix}" for suffix in DATA_SUFFIXES]
    return next((file for file in files if file.is_file()), files[0])


def licence_files(model: ModelConfig) -> tuple[Path, ...]:
    """Return the licence of the user's Hugging Face directory, and its card, which may name one."""
    if model.source != "local" or not model.path:
        return ()
    names = ("README.md", "LICENSE*", "LICENCE*", "NOTICE*")
    files = {file for name in names for file in Path(model.path).glob(name) if file.is_file()}
    return tuple(sorted(files))


def _weights(root: Path) -> list[Path]:
    """Return the weight files of a Hugging Face directory, without an index that is not used."""
    if unused_index(root):
        return [root / SINGLE_NAME]
    return [root / INDEX_NAME, *sorted(root.glob("*.safetensors"))]


def external_files(config: ModelConfig | DatasetConfig) -> tuple[Path, ...]:
    """Return the user's files whose content decides what fetch (a model) or fetch_dataset produces.

    Only paths are listed, in a fixed order. Missing files are left out for a model
    (the stage reports them) and kept for a dataset (both are needed).
    """
    if isinstance(config, DatasetConfig):
        pair = split_files(config) if config.source == "local" and config.path else ()
        return tuple(file for file in pair if file is not None)
    files: list[Path] = []
    if config.source == "local" and config.path:
        root = Path(config.path)
        files += [root / name for name in MODEL_FILES]
        files += _weights(root)
    if config.tokenizer_path:
        files += [Path(config.tokenizer_path) / name for name in TOKENIZER_AND_TEMPLATE]
    return tuple(file for file in files if file.is_file())
