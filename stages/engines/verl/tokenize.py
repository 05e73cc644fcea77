"""Stage tokenize of engine=verl: training data as Parquet in verl's schema, and the test's MindRecord.

verl renders the chat template itself (experimental/agent_loop). The model directory that it reads has the
template of training (train.py), which adds system prompt and suffix, so that a row holds the question only.
Source: verl 0.9.1, utils/dataset/rl_dataset.py, examples/data_preprocess/gsm8k.py.
"""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.engines.training_rows import tokenize
from stages.engines.verl.job import TRAIN_DATA
from stages.fetch.records import Row
from stages.tokenize.encode import Encoder
from stages.tokenize.text import ground_truth


def run(context: Context) -> None:
    """Write train.parquet, test.mindrecord and result.json; raise InputError as `tokenize` does."""
    tokenize(context, TRAIN_DATA, entries, save)


def entries(encoder: Encoder, rows: Sequence[Row], first: int) -> Iterator[dict[str, Any]]:
    """Yield the entry of each row in verl's schema."""
    dataset, config = encoder.dataset, encoder.config
    for number, row in enumerate(rows, start=first):
        yield {
            "data_source": dataset.name,
            "prompt": [{"role": "user", "content": row.prompt}],
            "reward_model": {"style": "rule", "ground_truth": ground_truth(row, dataset, config)},
            "extra_info": {"index": number, "split": "train", "line": row.line},
        }


def save(rows: Iterator[dict[str, Any]], target: Path) -> None:
    """Write a Parquet file."""
    arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(arrow.Table.from_pylist(list(rows)), target)
