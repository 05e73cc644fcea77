"""Stage tokenize of engines whose program reads prompts in a format of its own.

Training rows are written by functions of the engine; evaluate reads the test's MindRecord, as with
engine=local. Rows that are unusable, or whose prompt is longer than tokenize.max_prompt_length, are left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stages.base.context import Context
from stages.engines.job import TEST_DATA
from stages.fetch.records import Row
from stages.tokenize.counts import warnings
from stages.tokenize.encode import Encoder
from stages.tokenize.source import Rows, read_batches, splits
from stages.tokenize.stage import encoder_for
from stages.tokenize.stream import question_keys, tokenize_file, usable_rows
from stages.tokenize.tally import DROPPED, Tally

Convert = Callable[[Encoder, Sequence[Row], int], Iterable[dict[str, Any]]]
"""Function of encoder, usable rows, and number of the first one; returns a dict for each row."""
Save = Callable[[Iterator[dict[str, Any]], Path], None]
"""Function that writes the dicts of all rows to a file."""


def tokenize(context: Context, name: str, convert: Convert, save: Save) -> None:
    """Write training rows to the file `name`, the test's MindRecord, and result.json.

    Raises:
        InputError: no row is left, or more rows than dataset.max_bad_share are unusable.
    """
    encoder = encoder_for(context)
    train, test = splits(context.inputs["fetch_dataset"], encoder.dataset, encoder.columns)
    card = write(encoder, train, context.output / name, convert, save)
    tests = tokenize_file(encoder, test, context.output / TEST_DATA, training=question_keys(train))
    cards = {"train": card.to_json(), **tests}
    for warning in warnings(cards):
        context.warn(warning)
    context.write_result({"files": cards})


def write(encoder: Encoder, train: Rows[Row], target: Path, convert: Convert, save: Save) -> Tally:
    """Write the usable rows; return the counts."""
    tally = Tally(target.name, target.with_suffix(DROPPED))

    def converted() -> Iterator[dict[str, Any]]:
        for file, batch in read_batches(train, lambda row: row.prompt, tally):
            rows = list(usable_rows(encoder, tally, file, batch))
            yield from convert(encoder, rows, tally.rows_out)
            tally.rows_out += len(rows)

    save(converted(), target)
    tally.check(train.files[0], encoder.dataset.max_bad_share)
    return tally
