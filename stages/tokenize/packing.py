"""Plain text as full rows of ids for mindformers' pretraining: documents one after the other.

Each document ends with <|endoftext|>, as Qwen's own pretraining text does; rows are cut wherever they
are full, and only the last one is padded, so that no token is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.base.files import open_regular
from stages.fetch.config import DATA_SUFFIXES
from stages.fetch.records import TOO_LONG, BadLine, lines_of, read_records, text_fault
from stages.tokenize.encode import Encoder
from stages.tokenize.records import RecordWriter
from stages.tokenize.source import Source, Target, count_rows, dropped_rows
from stages.tokenize.tokenizer import ENDOFTEXT
from stages.weights.dtypes import Array

KEY = "text"
GROWTH = 3  # upper limit of the growth of a text's bytes by Unicode's composed form (NFC)


@dataclass(frozen=True)
class Passage:
    """A document, or a paragraph of a plain text file."""

    line: int
    text: str
    ends: bool
    """True if the document ends here."""


def tokenize_text(encoder: Encoder, sources: Sequence[Path], target: Path) -> dict[str, Any]:
    """Stream documents (tokenize.kind=text) into a MindRecord with the one column input_ids.

    Args:
        encoder: text to ids.
        sources: JSON lines, JSON arrays or Parquet with a key "text"; any other suffix is plain text, one
            document per file.
        target: see `stream.tokenize_file`, also for the result and errors.

    The card's rows are documents; paragraphs if a file is plain text.
    """
    length = encoder.config.sft_length + 1
    most = GROWTH * sum(file.stat().st_size for file in sources) + count_rows(sources)
    rows = Source(sources, read_passages, lambda row: row.text)
    with (
        dropped_rows(target) as dropped,
        RecordWriter(target, {"input_ids": length}, encoder.config.id_dtype, most // length + 1) as writer,
    ):
        made = Target(target.name, dropped, writer=writer)
        end = encoder.tokenizer.token_to_id(ENDOFTEXT)
        end = encoder.ids.eos[0] if end is None else end
        remaining = np.zeros(0, np.int64)
        for _, batch in rows.batches(made):
            encoded = encoder.batch([row.text for row in batch])
            for row, ids in zip(batch, encoded, strict=True):
                made.card.add_length("input_ids", len(ids))
                if row.ends:
                    ids.append(end)
            remaining = _write_full(
                made,
                np.concatenate([remaining, *(np.array(ids, np.int64) for ids in encoded)]),
                length,
                len(batch),
            )
            made.card.samples += [{"text": row.text[:2000]} for row in batch[: made.missing_samples]]
        if len(remaining):
            made.card.padding = length - len(remaining)
            last = np.pad(remaining, (0, made.card.padding), constant_values=encoder.ids.pad)
            _write_full(made, last, length, 0)
        made.check(sources[0], encoder.dataset.max_bad_share)
    return {target.stem: made.card.to_json()}


def _write_full(target: Target, ids: Array, length: int, rows: int) -> Array:
    """Write the full rows of `ids`, in which `rows` documents end; return the remaining ids."""
    full = len(ids) // length
    if full:
        target.write({"input_ids": ids[: full * length].reshape(full, length)}, rows)
    else:
        target.card.rows_out += rows
    return ids[full * length :]


def read_passages(path: Path) -> Iterator[Passage | BadLine]:
    """Yield the documents of a file of records, or the paragraphs of a plain text file."""
    return _documents(path) if path.suffix in DATA_SUFFIXES else _paragraphs(path)


def _documents(path: Path) -> Iterator[Passage | BadLine]:
    for record in read_records(path, (KEY,)):
        if isinstance(record, BadLine):
            yield record
            continue
        fault = text_fault(record.values, KEY)
        yield BadLine(record.line, fault) if fault else Passage(record.line, record.values[KEY], True)


def _paragraphs(path: Path) -> Iterator[Passage | BadLine]:
    """Split a text before each line that follows a blank one and does not begin with white space.

    Qwen2's tokenizer never joins text across these positions, so the ids are those of the complete text.
    """
    first, lines = 1, list[str]()
    try:
        with open_regular(path) as file:
            for number, raw in lines_of(file):
                if raw is None:
                    yield BadLine(number, TOO_LONG)
                    continue
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    yield BadLine(number, f"not UTF-8 at byte {error.start}")
                    continue
                if lines and not lines[-1].strip() and not line[0].isspace():
                    yield Passage(first, "".join(lines), False)
                    first, lines = number, []
                lines.append(line)
    except OSError as error:
        raise InputError(path, None, f"can't be read: {error.strerror}", "check the path") from error
    if "".join(lines).strip():
        yield Passage(first, "".join(lines), True)
    elif lines:
        yield BadLine(first, "blank")
