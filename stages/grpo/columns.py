"""Columns of the dataset for reward functions that accept them, in the order of tokenize's records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.base.errors import InputError
from stages.fetch.config import DatasetConfig
from stages.rewards.messages import OURS
from stages.rewards.process import Accepted
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.source import splits, written_rows
from stages.tokenize.text import columns


def dataset_columns(
    context: Context, records: Path, count: int, accepted: Sequence[Accepted]
) -> dict[str, list[Any]]:
    """Return the columns that a function accepts, each with the values of all `count` rows of `records`.

    Records have token ids only, so the rows are read again from the artifact of fetch_dataset; but not if
    no function accepts a column. A key that some rows lack is None there. `records`: train.* or test.* of
    tokenize.

    Raises:
        InputError: the rows are not those of the records.
    """
    takes_all = any(each.names is None for each in accepted)
    names = {name for each in accepted for name in each.names or ()} - OURS
    if not takes_all and not names:
        return {}
    fetched = context.inputs["fetch_dataset"]
    dataset, config = context.section(DatasetConfig, "dataset"), context.section(TokenizeConfig, "tokenize")
    train, test = splits(fetched, dataset, columns(dataset, config), with_all=True)
    rows = [row.columns or {} for row in written_rows(train if records.stem == "train" else test, records)]
    if len(rows) != count:
        rule = f"has {len(rows)} usable rows for the {count} of {records}"
        raise InputError(fetched, None, rule, "run tokenize again with --force tokenize")
    known = dict.fromkeys(key for row in rows for key in row if key not in OURS)
    return {key: [row.get(key) for row in rows] for key in known if takes_all or key in names}
