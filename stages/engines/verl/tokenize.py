"""Stage tokenize of engine=verl: training data as Parquet in verl's schema, and the test's MindRecord.

verl renders the chat template itself (experimental/agent_loop). The model directory that it reads has the
template of training (train.py), which adds system prompt and suffix, so that a row holds the question only.
Rows that are unusable, or whose prompt is longer than tokenize.max_prompt_length, are left out.
Source: verl 0.9.1, utils/dataset/rl_dataset.py, examples/data_preprocess/gsm8k.py.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.engines.verl.job import TRAIN_DATA
from stages.fetch.records import Row
from stages.tokenize.counts import warnings
from stages.tokenize.encode import Encoder
from stages.tokenize.source import Rows, read_batches, splits
from stages.tokenize.stage import encoder_for
from stages.tokenize.stream import question_keys, tokenize_file, usable_rows
from stages.tokenize.tally import DROPPED, Tally
from stages.tokenize.text import ground_truth


def run(context: Context) -> None:
    """Write train.parquet, test.mindrecord and result.json.

    Raises:
        InputError: no row is left, or more rows than dataset.max_bad_share are unusable.
    """
    encoder = encoder_for(context)
    train, test = splits(context.inputs["fetch_dataset"], encoder.dataset, encoder.columns)
    card = write_parquet(encoder, train, context.output / TRAIN_DATA)
    target = context.output / "test.mindrecord"
    tests = tokenize_file(encoder, test, target, training=question_keys(train))
    cards = {"train": card.to_json(), **tests}
    for warning in warnings(cards):
        context.warn(warning)
    context.write_result({"files": cards})


def write_parquet(encoder: Encoder, train: Rows[Row], target: Path) -> Tally:
    """Write the usable rows; return the counts."""
    arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    tally = Tally(target.name, target.with_suffix(DROPPED))
    rows = list(_usable_rows(encoder, tally, train))
    tally.check(train.files[0], encoder.dataset.max_bad_share)
    parquet.write_table(arrow.Table.from_pylist(rows), target)
    return tally


def _usable_rows(encoder: Encoder, tally: Tally, train: Rows[Row]) -> Iterator[dict[str, Any]]:
    dataset, config = encoder.dataset, encoder.config
    for file, batch in read_batches(train, lambda row: row.prompt, tally):
        for row in usable_rows(encoder, tally, file, batch):
            yield {
                "data_source": dataset.name,
                "prompt": [{"role": "user", "content": row.prompt}],
                "reward_model": {"style": "rule", "ground_truth": ground_truth(row, dataset, config)},
                "extra_info": {"index": tally.rows_out, "split": "train", "line": row.line},
            }
            tally.rows_out += 1
