"""Stage fetch_dataset: train.jsonl and test.jsonl, generated, or links to the user's own checked files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from stages.context import Context
from stages.errors import ConfigError, InputError
from stages.fetch import arith
from stages.fetch.config import DatasetConfig, check_dataset, split_files
from stages.fetch.jsonl import check_file, write_rows

SPLITS = ("train", "test")


def run(context: Context) -> None:
    """Stage entry. `seed` is needed for generated rows only."""
    dataset = context.section(DatasetConfig, "dataset")
    seed = context.seed if dataset.source == "builtin" else 0
    result = fetch_dataset(dataset, seed, context.output)
    (context.output / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def fetch_dataset(dataset: DatasetConfig, seed: int, output: Path) -> dict[str, Any]:
    """Put train.jsonl and test.jsonl into `output`.

    Args:
        dataset: which one.
        seed: of the generator; unused for local files.
        output: an existing directory.

    Returns:
        rows and bad lines per split, with the first bad lines by number and reason.

    Raises:
        ConfigError: the config contradicts itself.
        InputError: a file is missing, malformed beyond what is tolerated, or too short.
    """
    problems = check_dataset(dataset)
    if problems:
        raise ConfigError(problems)
    if dataset.source == "builtin":
        return _generate(dataset, seed, output)
    result: dict[str, Any] = {"rows": {}, "bad_lines": {}, "bad_listed": {}}
    limits = (dataset.train_rows, dataset.test_rows)
    for split, file, limit in zip(SPLITS, split_files(dataset), limits, strict=True):
        _require_file(split, file)
        found = check_file(file, dataset.columns, dataset.max_bad_share)
        if limit is not None and found.rows < limit:
            rule = f"rows are fewer than dataset.{split}_rows={limit}"
            raise InputError(file, found.rows, rule, "lower it")
        (output / f"{split}.jsonl").symlink_to(file.resolve())
        result["rows"][split] = limit or found.rows
        result["bad_lines"][split] = found.bad
        result["bad_listed"][split] = [dataclasses.asdict(line) for line in found.listed]
    return result


def _generate(dataset: DatasetConfig, seed: int, output: Path) -> dict[str, Any]:
    assert dataset.arith is not None
    assert dataset.train_rows is not None
    assert dataset.test_rows is not None
    train, test = arith.generate(dataset.arith, seed, dataset.train_rows, dataset.test_rows)
    for split, rows in zip(SPLITS, (train, test), strict=True):
        write_rows(output / f"{split}.jsonl", rows, dataset.columns)
    nothing = dict.fromkeys(SPLITS, 0)
    listed: dict[str, list[Any]] = {split: [] for split in SPLITS}
    return {"rows": {"train": len(train), "test": len(test)}, "bad_lines": nothing, "bad_listed": listed}


def _require_file(split: str, file: Path) -> None:
    if not file.is_file():
        key = "dataset.test_path" if split == "test" else "dataset.path"
        raise InputError(file, None, f"is not a file (the {split} split)", f"set {key}")
