"""Stage fetch_dataset: the files of the training and the held-out split, generated, linked or downloaded."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context, Progress
from stages.base.errors import InputError
from stages.fetch import arith, hub, url
from stages.fetch.config import DatasetConfig, dataset_problems, remote_files
from stages.fetch.download import Downloaded, adopt, link
from stages.fetch.listing import Listed, matching
from stages.fetch.records import BadLine, data_suffix, read_lines, row_position
from stages.fetch.sources import FetchConfig
from stages.fetch.user_files import check_directory, split_files

SPLITS = ("train", "test")
LISTED = 20
"""Bad lines that are listed; the others are only counted."""
Files = dict[str, list[Path]]
"""Split -> its files."""


def run(context: Context) -> None:
    """Write train.SUFFIX and test.SUFFIX (or train-00000.SUFFIX, ... of several shards), and result.json.

    result.json holds files, rows and bad lines per split, with the first bad lines by number and reason;
    for downloads also `sources`: origins, sizes and digests.

    Raises:
        ConfigError: the configuration contradicts itself.
        InputError: a file is missing, malformed beyond what is tolerated, or too short; or the source
            refuses, delivers other bytes than it lists, or stays unreachable.
    """
    dataset = context.section(DatasetConfig, "dataset")
    demand(dataset_problems(dataset))
    downloads = list[Downloaded]()
    put: Callable[[Path, Path], None] = partial(adopt, scratch=context.work)
    if dataset.source == "builtin":
        files = _generate(dataset, context.seed, context.work)
    elif dataset.source == "local":
        files, put = _local_files(dataset), link
    else:
        fetch = context.section(FetchConfig, "fetch")
        files, downloads = _download(dataset, fetch, context.work, context.progress_in_bytes(dataset.name))
    result = _put_splits(dataset, files, put, context.output)
    if downloads:
        result["sources"] = [download.record() for download in downloads]
    context.write_result(result)


def _generate(dataset: DatasetConfig, seed: int, work: Path) -> Files:
    assert dataset.arith and dataset.train_rows and dataset.test_rows  # the table of rules requires them
    splits = arith.generate(dataset.arith, seed, dataset.train_rows, dataset.test_rows)
    files, keys = {split: [work / f"{split}.jsonl"] for split in SPLITS}, dataset.columns
    for (file,), pairs in zip(files.values(), splits, strict=True):
        file.unlink(missing_ok=True)  # a killed attempt's may be write-protected
        rows = ({keys.prompt: prompt, keys.answer: answer} for prompt, answer in pairs)
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        file.write_text("".join(lines), encoding="utf-8")
    return files


def _local_files(dataset: DatasetConfig) -> Files:
    check_directory(dataset)
    train, test = split_files(dataset)
    for file in train:
        if not file.is_file():
            raise InputError(file, None, "is not a file (the train split)", "set dataset.path")
    for file in test:
        if not file.is_file():
            remedy = "set dataset.test_path, or dataset.test_rows to hold out rows of train"
            raise InputError(file, None, "is not a file (the test split)", remedy)
    return {"train": [*train], "test": [*test]}


def _download(
    dataset: DatasetConfig, fetch: FetchConfig, work: Path, progress: Progress
) -> tuple[Files, list[Downloaded]]:
    if dataset.source == "url":
        downloads = {split: url.download(file, fetch, work) for split, file in remote_files(dataset)}
        files = {split: [each.root / each.files[0].path] for split, each in downloads.items()}
        return files, list(downloads.values())
    assert dataset.hub is not None
    chosen: dict[str, list[Listed]] = {}

    def select(listed: Sequence[Listed], origin: str) -> list[Listed]:
        for split, file in remote_files(dataset):
            chosen[split] = matching(listed, origin, file.name)
        return list(dict.fromkeys(itertools.chain(*chosen.values())))

    hub_id, revision = dataset.hub.id, dataset.hub.revision
    download = hub.download("dataset", hub_id, revision, select, fetch, work, progress)
    files = {split: [download.root / file.path for file in matches] for split, matches in chosen.items()}
    return files, [download]


def _put_splits(
    dataset: DatasetConfig, files: Files, put: Callable[[Path, Path], None], output: Path
) -> dict[str, Any]:
    """Check every file and put it into the artifact; return the result."""
    if dataset.solution == "none":
        return _put_examples(files["train"], put, output)
    files = {split: files.get(split, []) for split in SPLITS}
    names = {split: _names(split, paths) for split, paths in files.items()}
    rows, bad, listed = {}, {}, {}
    for split, paths in files.items():
        rows[split], bad[split], lines = _check_split(paths, dataset)
        listed[split] = [*map(dataclasses.asdict, lines)]
    rows = _limit_rows(dataset, files, rows)
    for split, paths in files.items():
        for name, file in zip(names[split], paths, strict=True):
            put(file, output / name)
    return {"files": names, "rows": rows, "bad_lines": bad, "bad_listed": listed}


def _put_examples(files: Sequence[Path], put: Callable[[Path, Path], None], output: Path) -> dict[str, Any]:
    """Put files of any form into the artifact; tokenize reads and checks their rows, or their text."""
    names = [f"train-{n:05d}" if len(files) > 1 else "train" for n in range(len(files))]
    names = [f"{name}{''.join(file.suffixes[-2:])}" for name, file in zip(names, files, strict=True)]
    for name, file in zip(names, files, strict=True):
        put(file, output / name)
    return {"files": {"train": names, "test": []}, "rows": {}, "bad_lines": {}, "bad_listed": {}}


def _check_split(paths: Sequence[Path], dataset: DatasetConfig) -> tuple[int, int, list[BadLine]]:
    """Return the numbers of usable and of bad rows of a split, and the first bad ones.

    Refuse it if more than dataset.max_bad_share of its lines are bad, or all are.
    """
    rows = bad = 0
    listed: list[BadLine] = []
    first = ""
    for path in paths:
        for entry in read_lines(path, dataset.columns):
            if isinstance(entry, BadLine):
                bad += 1
                first = first or row_position(path, entry.line)
                listed += [entry] if bad <= LISTED else []
            else:
                rows += 1
    if bad and bad / (rows + bad) > dataset.max_bad_share:
        rule = f"{listed[0].reason} ({bad} bad lines of {rows + bad}, {dataset.max_bad_share:.1%} tolerated)"
        last = "raise dataset.max_bad_share" if rows else "give JSON lines, a JSON array or Parquet"
        raise InputError(first, None, rule, f"correct the lines, set dataset.columns, or {last}")
    if paths and not rows:
        raise InputError(paths[0], None, "holds no rows", "give JSON lines, a JSON array or Parquet")
    return rows, bad, listed


def _names(split: str, files: Sequence[Path]) -> list[str]:
    suffixes = [data_suffix(file) for file in files]
    if len(files) == 1:
        return [f"{split}{suffixes[0]}"]
    return [f"{split}-{number:05d}{suffix}" for number, suffix in enumerate(suffixes)]


def _limit_rows(dataset: DatasetConfig, files: Files, rows: dict[str, int]) -> dict[str, int]:
    """Return the number of rows that will be used of each split; refuse fewer than requested."""
    if not files["test"]:
        held_out = dataset.test_rows or 0
        rows = {"train": rows["train"] - held_out, "test": held_out}
        if rows["train"] <= 0:
            rule = f"leaves nothing of the {rows['train'] + held_out} rows for training"
            raise InputError("dataset.test_rows", held_out, rule, "lower it")
    for split, limit in (("train", dataset.train_rows), ("test", dataset.test_rows)):
        if limit is not None and rows[split] < limit:
            rule = f"rows are fewer than dataset.{split}_rows={limit}"
            raise InputError(files[split][0], rows[split], rule, "lower it")
    return {"train": dataset.train_rows or rows["train"], "test": dataset.test_rows or rows["test"]}
