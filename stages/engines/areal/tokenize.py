"""Stage tokenize of engine=areal: training data as JSON lines, and the test's MindRecord.

A line has the ids of the prompt, with the chat template of the run, so that AReaL renders none. `messages` is
what AReaL's own examples have; it is there for readers.
Source: AReaL 1.0.4, dataset/gsm8k.py, workflow/rlvr.py.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.engines.areal.job import TRAIN_DATA
from stages.engines.training_rows import tokenize
from stages.fetch.records import Row
from stages.tokenize.encode import Encoder
from stages.tokenize.text import ground_truth


def run(context: Context) -> None:
    """Write train.jsonl, test.mindrecord and result.json; raise InputError as `tokenize` does."""
    tokenize(context, TRAIN_DATA, lines, save)


def lines(encoder: Encoder, rows: Sequence[Row], first: int) -> Iterator[dict[str, Any]]:
    """Yield the line of each row."""
    encoded, _ = encoder.encode(rows, with_answers=False)
    for number, (row, entry) in enumerate(zip(rows, encoded, strict=True), start=first):
        yield {
            "row": number,
            "prompt_ids": entry.prompt,
            "messages": [{"role": "user", "content": row.prompt}],
            "solution": ground_truth(row, encoder.dataset, encoder.config),
        }


def save(rows: Iterator[dict[str, Any]], target: Path) -> None:
    """Write JSON lines."""
    with target.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
