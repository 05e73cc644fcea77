"""The user's files that the stages fetch and fetch_dataset read."""

from pathlib import Path

from stages.fetch.config import DATA_SUFFIXES, MODEL_FILES, TOKENIZER_AND_TEMPLATE, DatasetConfig
from stages.models.config import ModelConfig
from stages.weights.index import INDEX_NAME, SINGLE_NAME, unused_index


def split_files(config: DatasetConfig) -> tuple[Path, Path | None]:
    """Return the (train, test) files of a local dataset, whether or not they exist.

    test is None if test_rows is set and there is no held-out file: rows of train are then held out.
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
    train = _split_file(root, "train") if root.is_dir() else root
    return train, _split_file(train.parent, "test")


def _split_file(root: Path, split: str) -> Path:
    """Return the split's file in a directory: .jsonl before .json before .parquet; default .jsonl."""
    files = [root / f"{split}{suffix}" for suffix in DATA_SUFFIXES]
    return next((file for file in files if file.is_file()), files[0])


def external_files(config: ModelConfig | DatasetConfig) -> tuple[Path, ...]:
    """Return the user's files whose content decides what fetch (a model) or fetch_dataset produces.

    Missing files are left out for a model (the stage reports them) and listed for a dataset.
    """
    if isinstance(config, DatasetConfig):
        pair = split_files(config) if config.source == "local" and config.path else ()
        return tuple(file for file in pair if file is not None)
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
