"""The user's files that the stages fetch and fetch_dataset read."""

import re
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.fetch.config import DATA_SUFFIXES, MODEL_FILES, TOKENIZER_AND_TEMPLATE, DatasetConfig
from stages.models.config import ModelConfig
from stages.weights.index import INDEX_NAME, SINGLE_NAME, unused_index

DATA_FILE = re.compile(
    r"(?P<split>train|test)(?:-(?P<number>\d{1,5})(?:-of-(?P<total>\d{1,5}))?)?"
    rf"(?P<suffix>{'|'.join(map(re.escape, DATA_SUFFIXES))})",
    re.IGNORECASE,
)
"""train.jsonl, or a shard as Hugging Face names it: train-00000-of-00002.parquet."""
NESTED = "data"
"""Directory in which repositories of datasets keep their files."""
SPLITS = ("train", "test")
LISTED = 8
MOST_SEARCHED = 100
"""Entries of a directory without training files that are searched for some."""


def split_files(config: DatasetConfig) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the (train, test) files of a local dataset, whether or not they exist, shards in order.

    There are no test files if test_rows is set and none exist: rows of train are then held out. The files
    include missing shards.
    """
    train, test = _files_at(config.path or "")
    if config.solution == "none":
        return train, ()
    if config.test_path:
        return train, (Path(config.test_path),)
    return train, () if config.test_rows is not None and not _exist(test) else test


def has_test_file(path: str, test_path: str | None) -> bool:
    """Return True if the user's dataset at `path` has a held-out file."""
    return test_path is not None or _exist(_files_at(path)[1])


def check_directory(config: DatasetConfig) -> None:
    """Refuse a directory without training files, or with several sets of shards; raises ConfigError.

    The message says what the directory has instead. Nothing is checked if dataset.path is a file.
    """
    root = Path(config.path or "")
    if not root.is_dir():
        return
    for split in SPLITS:
        sets = [shards[0][0].name for key, shards in _sets(root, split, nested=True).items() if key.of]
        if len(sets) > 1:
            rule = f"has several sets of shards of {split}: {', '.join(sets[:LISTED])}"
            raise ConfigError([Problem("dataset.path", config.path, rule, "remove all but one")])
    if not _exist(_split_files(root, "train")):
        rule, remedy = _instead_of_train(root)
        raise ConfigError([Problem("dataset.path", config.path, rule, remedy)])


def _instead_of_train(root: Path) -> tuple[str, str]:
    """Return what a directory has instead of training files, and what to do."""
    entries = _entries(root)
    names = [entry.name for entry in entries]
    below = [entry for entry in entries[:MOST_SEARCHED] if _exist(_split_files(entry, "train"))]
    if below:
        listed = ", ".join(entry.name for entry in below[:LISTED])
        return f"has training files in {listed} only", f"choose one, as in dataset.path={below[0]}"
    if any(
        name.endswith(".arrow")
        for entry in entries[:MOST_SEARCHED]
        for name in (entry.name, *(file.name for file in _entries(entry)))
    ):
        rule = "has Arrow files of datasets.save_to_disk, which are not read"
        return rule, "write each split with Dataset.to_parquet: train.parquet, test.parquet"
    rule = f"has no train.* or train-00000-of-*.* with one of {', '.join(DATA_SUFFIXES)}"
    rule += f", but {', '.join(names[:LISTED])}" if names else ": it is empty"
    return rule, "rename or convert its files, or give the training file"


def _exist(files: tuple[Path, ...]) -> bool:
    return any(file.is_file() for file in files)


def _entries(directory: Path) -> list[Path]:
    """Return the content of a directory by name; nothing if it is none or can't be read."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _files_at(path: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    root = Path(path)
    train = _split_files(root, "train") if root.is_dir() else (root,)
    return train, _split_files(train[0].parent, "test", nested=False)


@dataclass(frozen=True, order=True)
class Set:
    """Files that belong together, in the order of preference: a single file before shards, .jsonl first."""

    sharded: bool
    suffix: int
    """Position in DATA_SUFFIXES."""
    of: str
    """Number of shards, as in the names; empty if these do not say it."""


def _sets(root: Path, split: str, nested: bool) -> dict[Set, list[tuple[Path, re.Match[str]]]]:
    """Return the files of a split in a directory; with `nested`, if it has none, in its directory data."""
    for directory in (root, root / NESTED) if nested else (root,):
        sets: dict[Set, list[tuple[Path, re.Match[str]]]] = {}
        for file in _entries(directory):
            match = DATA_FILE.fullmatch(file.name)
            if match and match["split"].lower() == split:
                suffix = DATA_SUFFIXES.index(match["suffix"].lower())
                key = Set(match["number"] is not None, suffix, match["total"] or "")
                sets.setdefault(key, []).append((file, match))
        if sets:
            return sets
    return {}


def _split_files(root: Path, split: str, nested: bool = True) -> tuple[Path, ...]:
    """Return the files of a split by number, missing shards included; SPLIT.jsonl if there are none."""
    sets = _sets(root, split, nested)
    if not sets:
        return (root / f"{split}{DATA_SUFFIXES[0]}",)
    chosen = min(sets)
    files = {int(match["number"] or 0): file for file, match in sets[chosen]}
    if chosen.of:
        file, match = sets[chosen][0]
        start, end = match.span("number")
        first = 0 if 0 in files or int(chosen.of) not in files else 1  # some writers count from 1
        for number in range(first, first + int(chosen.of)):
            name = f"{file.name[:start]}{number:0{end - start}d}{file.name[end:]}"
            files.setdefault(number, file.with_name(name))
    return tuple(file for _, file in sorted(files.items()))


def external_files(config: ModelConfig | DatasetConfig) -> tuple[Path, ...]:
    """Return the user's files whose content decides what fetch (a model) or fetch_dataset produces.

    Missing files are left out for a model (the stage reports them) and listed for a dataset.

    Raises:
        ConfigError: the dataset's directory has no training files, or several sets of them.
    """
    if isinstance(config, DatasetConfig):
        if config.source != "local" or not config.path:
            return ()
        check_directory(config)
        train, test = split_files(config)
        return (*train, *test)
    files: list[Path] = []
    if config.source == "local" and config.path:
        root = Path(config.path)
        files += [root / name for name in (*MODEL_FILES, INDEX_NAME)]
        files += sorted(root.glob("*.safetensors"))
        if unused_index(root):
            files = [root / name for name in (*MODEL_FILES, SINGLE_NAME)]
    if config.tokenizer_path:
        files += [Path(config.tokenizer_path) / name for name in TOKENIZER_AND_TEMPLATE]
    return tuple(file for file in files if file.is_file())
