"""Stage fetch_dataset: the files of the training and the held-out split, generated, linked or downloaded."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.errors import InputError
from stages.fetch import arith, hub, url
from stages.fetch.config import DATA_SUFFIXES, DATASET, DatasetConfig, remote_files, split_files
from stages.fetch.download import Arrived, Downloaded, Progress, adopt, take
from stages.fetch.jsonl import check_file, write_rows
from stages.fetch.listing import Listed, matching
from stages.fetch.sources import FetchConfig
from stages.weights.progress import to_context

SPLITS = ("train", "test")
Put = Callable[[Path, Path], None]


def run(context: Context) -> None:
    """Stage entry. `seed` is needed for generated rows only, `fetch` for all others."""
    dataset = context.section(DatasetConfig, "dataset")
    if dataset.source == "builtin":
        result = fetch_dataset(dataset, context.output, seed=context.seed)
    else:
        fetch = context.section(FetchConfig, "fetch")
        progress = to_context(context, dataset.name)
        result = fetch_dataset(dataset, context.output, fetch=fetch, work=context.work, progress=progress)
    context.write_result(result)


def fetch_dataset(
    dataset: DatasetConfig,
    output: Path,
    *,
    seed: int = 0,
    fetch: FetchConfig | None = None,
    work: Path | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Put train.SUFFIX and test.SUFFIX (or train-00000.SUFFIX, ... of several shards) into `output`.

    Args:
        dataset: which one.
        output: an existing directory.
        seed: of the generator; unused for files.
        fetch: how to fetch; unused for generated rows.
        work: scratch that survives a kill; for downloads.
        progress: called with (bytes here, bytes in all) of a download.

    Returns:
        files, rows and bad lines per split, with the first bad lines by number and reason; and for
        downloads under `sources` what was fetched from where, with sizes and digests.

    Raises:
        ConfigError: the config contradicts itself.
        InputError: a file is missing, malformed beyond what is tolerated, or too short; or the source
            refuses, delivers other bytes than it lists, or stays unreachable.
    """
    DATASET.demand(dataset)
    if dataset.source == "builtin":
        return _generate(dataset, seed, output)
    assert fetch is not None
    if dataset.source == "local":
        train, test = split_files(dataset)
        for split, file in (("train", train), ("test", test)):
            _require_file(split, file)
        put = functools.partial(take, copy=fetch.copy)
        return _put_splits(dataset, {"train": [train], "test": [test] if test else []}, put, output)
    assert work is not None
    splits, downloads = _download(dataset, fetch, work, progress)
    result = _put_splits(dataset, splits, adopt, output)
    return result | {"sources": [download.record() for download in downloads]}


def _download(
    dataset: DatasetConfig, fetch: FetchConfig, work: Path, progress: Progress
) -> tuple[dict[str, list[Path]], list[Downloaded]]:
    """Split -> its files in the download directory, and what was downloaded."""
    splits: dict[str, list[Path]] = {split: [] for split in SPLITS}
    if dataset.source == "url":
        downloads = []
        for split, file in remote_files(dataset):
            downloads.append(url.download(file, fetch, work, progress))
            splits[split] = [downloads[-1].root / arrived.path for arrived in downloads[-1].files]
        return splits, downloads
    assert dataset.hub is not None

    def select(listed: Sequence[Listed], origin: str) -> list[Listed]:
        by_path = {
            f.path: f for _, file in remote_files(dataset) for f in matching(listed, file.name, origin)
        }
        return list(by_path.values())

    hub_id, revision = dataset.hub.id, dataset.hub.revision
    got = hub.download("dataset", hub_id, revision, select, fetch, work, progress)
    for split, file in remote_files(dataset):
        listed = [Listed(arrived.path, arrived.size, arrived.sha256) for arrived in got.files]
        names = [match.path for match in matching(listed, file.name, got.origin)]
        _check_digest(split, file.sha256, [arrived for arrived in got.files if arrived.path in names])
        splits[split] = [got.root / name for name in names]
    return splits, [got]


def _check_digest(split: str, expected: str | None, files: Sequence[Arrived]) -> None:
    if expected is None:
        return
    key = f"dataset.files.{split}.sha256"
    if len(files) > 1:
        rule = f"is the digest of one file, dataset.files.{split}.name matches {len(files)}"
        raise InputError(key, expected, rule, "set it to null: the listing's digests are checked")
    if files[0].sha256 != expected:
        rule = f"{files[0].path} has sha256 {files[0].sha256}"
        raise InputError(key, expected, rule, "set the new digest, or another revision")


def _put_splits(
    dataset: DatasetConfig, splits: dict[str, list[Path]], put: Put, output: Path
) -> dict[str, Any]:
    """Check every file and make it the artifact's."""
    checks = {
        split: [check_file(file, dataset.columns, dataset.max_bad_share) for file in files]
        for split, files in splits.items()
    }
    rows = {split: sum(check.rows for check in file_checks) for split, file_checks in checks.items()}
    names = {
        split: [_name(split, number, file, len(files)) for number, file in enumerate(files)]
        for split, files in splits.items()
    }
    result = {
        "files": names,
        "rows": _limit_rows(dataset, splits, rows),
        "bad_lines": {
            split: sum(check.bad for check in file_checks) for split, file_checks in checks.items()
        },
        "bad_listed": {
            split: [dataclasses.asdict(line) for check in file_checks for line in check.listed]
            for split, file_checks in checks.items()
        },
    }
    for split, files in splits.items():
        for name, file in zip(names[split], files, strict=True):
            put(file, output / name)
    return result


def _name(split: str, number: int, file: Path, count: int) -> str:
    suffix = file.suffix if file.suffix in DATA_SUFFIXES else DATA_SUFFIXES[0]
    return f"{split}{suffix}" if count == 1 else f"{split}-{number:05d}{suffix}"


def _limit_rows(
    dataset: DatasetConfig, splits: dict[str, list[Path]], rows: dict[str, int]
) -> dict[str, int]:
    """Return the number of rows that will be used of each split.

    Raises:
        InputError: there are fewer than are asked for.
    """
    if not splits["test"]:  # the last rows of train are held out
        held_out = dataset.test_rows or 0
        rows = {"train": rows["train"] - held_out, "test": held_out}
        if rows["train"] <= 0:
            rule = f"leaves nothing of the {rows['train'] + held_out} rows for training"
            raise InputError("dataset.test_rows", held_out, rule, "lower it")
    for split, limit in (("train", dataset.train_rows), ("test", dataset.test_rows)):
        if limit is not None and rows[split] < limit:
            rule = f"rows are fewer than dataset.{split}_rows={limit}"
            raise InputError(splits[split][0], rows[split], rule, "lower it")
    return {"train": dataset.train_rows or rows["train"], "test": dataset.test_rows or rows["test"]}


def _generate(dataset: DatasetConfig, seed: int, output: Path) -> dict[str, Any]:
    assert dataset.arith is not None
    assert dataset.train_rows is not None
    assert dataset.test_rows is not None
    train, test = arith.generate(dataset.arith, seed, dataset.train_rows, dataset.test_rows)
    for split, rows in zip(SPLITS, (train, test), strict=True):
        write_rows(output / f"{split}.jsonl", rows, dataset.columns)
    return {
        "files": {split: [f"{split}.jsonl"] for split in SPLITS},
        "rows": {"train": len(train), "test": len(test)},
        "bad_lines": dict.fromkeys(SPLITS, 0),
        "bad_listed": {split: [] for split in SPLITS},
    }


def _require_file(split: str, file: Path | None) -> None:
    if file is not None and not file.is_file():
        key = "dataset.test_path" if split == "test" else "dataset.path"
        remedy = f"set {key}"
        if split == "test":
            remedy += ", or dataset.test_rows to hold out the last rows of train"
        raise InputError(file, None, f"is not a file (the {split} split)", remedy)
