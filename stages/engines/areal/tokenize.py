"""Stage tokenize of engine=areal: training data as JSON lines, and the test's MindRecord.

A line has the ids of the prompt, with the chat template of the run, so that AReaL renders none. `messages` is
what AReaL's own examples have; it is there for readers. Rows that are unusable, or whose prompt is longer
than tokenize.max_prompt_length, are left out.
Source: AReaL 1.0.4, dataset/gsm8k.py, workflow/rlvr.py.
"""

import json
from pathlib import Path

from stages.base.context import Context
from stages.engines.areal.job import TRAIN_DATA
from stages.fetch.records import Row
from stages.tokenize.counts import warnings
from stages.tokenize.encode import Encoder
from stages.tokenize.source import Rows, read_batches, splits
from stages.tokenize.stage import encoder_for
from stages.tokenize.stream import question_keys, tokenize_file, usable_rows
from stages.tokenize.tally import DROPPED, Tally
from stages.tokenize.text import ground_truth


def run(context: Context) -> None:
    """Write train.jsonl, test.mindrecord and result.json.

    Raises:
        InputError: no row is left, or more rows than dataset.max_bad_share are unusable.
    """
    encoder = encoder_for(context)
    train, test = splits(context.inputs["fetch_dataset"], encoder.dataset, encoder.columns)
    card = write_lines(encoder, train, context.output / TRAIN_DATA)
    target = context.output / "test.mindrecord"
    tests = tokenize_file(encoder, test, target, training=question_keys(train))
    cards = {"train": card.to_json(), **tests}
    for warning in warnings(cards):
        context.warn(warning)
    context.write_result({"files": cards})


def write_lines(encoder: Encoder, train: Rows[Row], target: Path) -> Tally:
    """Write the usable rows; return the counts."""
    dataset, config = encoder.dataset, encoder.config
    tally = Tally(target.name, target.with_suffix(DROPPED))
    with target.open("w", encoding="utf-8") as out:
        for file, batch in read_batches(train, lambda row: row.prompt, tally):
            rows = list(usable_rows(encoder, tally, file, batch))
            encoded, _ = encoder.encode(rows, with_answers=False)
            for row, entry in zip(rows, encoded, strict=True):
                line = {
                    "row": tally.rows_out,
                    "prompt_ids": entry.prompt,
                    "messages": [{"role": "user", "content": row.prompt}],
                    "solution": ground_truth(row, dataset, config),
                }
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
                tally.rows_out += 1
    tally.check(train.files[0], dataset.max_bad_share)
    return tally
