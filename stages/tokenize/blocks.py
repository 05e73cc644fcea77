"""Text to blocks of equal length for supervised training, as mindformers' own scripts cut it.

tokenize.kind=wiki: paragraphs of a text file in WikiText's format, without its headings. wikipedia: lines of
the first column of Parquet files. Either way the ids of all texts follow each other and are cut into blocks
of sft_length + 1 ids, the column input_ids; what remains at the end is left out.

Source: mindformers 051d65f, research/qwen2/qwen2_preprocess.py (wiki), and llama_preprocess.py in
mindformers/tools/dataset_preprocess/llama with mindformers/dataset/dataloader/training_dataloader.py
(wikipedia).
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.base.files import understood
from stages.fetch.records import BadLine, encoding_fault, read_records
from stages.tokenize.encode import Encoder
from stages.tokenize.mindrecord import MindRecordFile
from stages.tokenize.tally import SAMPLES, RecordFile
from stages.weights.dtypes import Array

COLUMN = "input_ids"
TEXTS_AT_ONCE = 1024
_Rule = tuple[str | re.Pattern[str], str]


def _inside(opening: str, closing: str, but: str) -> _Rule:
    """Return a rule that removes the white space within two brackets or quotation marks."""
    start, end = re.escape(opening), re.escape(closing)
    return re.compile(rf"{start}\s*([^{but}]*?)\s*{end}"), rf"{opening}\1{closing}"


CLEANING: tuple[_Rule, ...] = (
    ("s '", "s'"),
    (re.compile("/' [0-9]/"), "/'[0-9]/"),  # a typing error that became the usual form of this rule
    *((f" @{mark}@ ", mark) for mark in "-,."),
    *((f" {mark} ", f"{mark} ") for mark in ":;.!?,"),
    _inside("(", ")", r"\)"),
    _inside("[", "]", r"\]"),
    _inside("{", "}", "}"),
    _inside('"', '"', '"'),
    _inside("'", "'", "'"),
    *((" ".join("=" * count), "=" * count) for count in (4, 3, 2)),
    (" \N{DEGREE SIGN} ", "\N{DEGREE SIGN}"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
)
"""What turns WikiText's tokens into text again, in this order: pattern and what replaces it."""


def cleaned(text: str) -> str:
    """Return WikiText's tokens as text."""
    for pattern, replacement in CLEANING:
        if isinstance(pattern, str):
            text = text.replace(pattern, replacement)
        else:
            text = pattern.sub(replacement, text)
    return text


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text that are no headings."""
    for paragraph in cleaned(text).split("\n\n"):
        if paragraph and not paragraph.strip().startswith("="):
            yield paragraph


def tokenize_text(encoder: Encoder, sources: Sequence[Path], target: Path) -> dict[str, Any]:
    """Write text as blocks into NAME.mindrecord, or NAME_0.mindrecord and so on; return their data cards.

    With several shards each holds an equal part of the blocks, one after the other.

    Raises:
        InputError: a file cannot be read, or its text fills no block.
    """
    config, length = encoder.config, encoder.config.sft_length + 1
    made = _wiki if config.kind == "wiki" else _wikipedia
    blocks = np.concatenate([np.empty((0, length), np.int32), *made(encoder, sources, length)])
    if not len(blocks):
        rule = f"has too few tokens for one block of tokenize.sft_length={config.sft_length} and one more"
        raise InputError(sources[0], None, rule, "give more text, or lower tokenize.sft_length")
    cards = {}
    with ExitStack() as stack:
        for number, part in enumerate(np.array_split(blocks, config.shards)):
            name = target if config.shards == 1 else target.with_stem(f"{target.stem}_{number}")
            writer = MindRecordFile.for_rows(name, {COLUMN: length}, config.id_dtype, len(part))
            file = RecordFile(name.name, writer=stack.enter_context(writer))
            file.rows_in = len(part)
            for _ in part:
                file.add_length(COLUMN, length)
            if len(part):
                file.write({COLUMN: part.astype(np.int64)})
            decoded = encoder.tokenizer.decode_batch(part[:SAMPLES].tolist(), skip_special_tokens=False)
            file.samples += [{"text": text} for text in decoded]
            cards[name.stem] = file.to_json()
    return cards


def _wiki(encoder: Encoder, sources: Sequence[Path], length: int) -> Iterator[Array]:
    """Yield the blocks of text files, `repeat` times, without the incomplete last one."""
    ids = array("i")
    for source in sources:
        with understood(source, "UTF-8 text", "convert it to UTF-8"):
            text = source.read_text(encoding="utf-8")
        for encoded in _encoded(encoder, paragraphs(text)):
            ids.extend(encoder.first)
            ids.extend(encoded)
    everything = np.tile(np.frombuffer(ids, np.int32), encoder.config.repeat)
    count = len(everything) // length
    yield everything[: count * length].reshape(count, length)


def _wikipedia(encoder: Encoder, sources: Sequence[Path], length: int) -> Iterator[Array]:
    """Yield the blocks of Parquet files; with samples_num so many, from the beginning again if need be."""
    blocks = [block for source in sources for block in _aligned(_lines(encoder, source), length, encoder)]
    wanted = encoder.config.samples_num
    if blocks:
        first = encoder.first  # Llama 3's begin token takes the place of the block's last one
        rows = np.array([[*first, *block[: length - len(first)]] for block in blocks], np.int32)
        yield rows if wanted is None else np.resize(rows, (wanted, length))


def _aligned(lines: Iterable[list[int]], length: int, encoder: Encoder) -> Iterator[list[int]]:
    """Yield the blocks of one file.

    mindformers loses a block that ends where a line ends if it is the only one in what was collected
    (pad_func counts blocks that something follows, and drops one at least); compat=mindformers does, too.
    """
    loses = encoder.config.compat == "mindformers"
    waiting: list[int] = []
    for ids in lines:
        waiting += ids
        if len(waiting) < length:
            continue
        count = (len(waiting) - 1) // length if loses else len(waiting) // length
        yield from (waiting[at * length : (at + 1) * length] for at in range(count))
        waiting = waiting[max(count, 1) * length :]


def _lines(encoder: Encoder, source: Path) -> Iterator[list[int]]:
    """Yield the ids of every line of a Parquet file's first column."""
    return _encoded(encoder, _texts(source))


def _texts(source: Path) -> Iterator[str]:
    for record in read_records(source):
        text = "" if isinstance(record, BadLine) else next(iter(record.values.values()), "")
        if not isinstance(text, str) or encoding_fault(text, "text"):
            raise InputError(f"{source}:{record.line} (row)", None, "its first column must be text", "")
        yield from (line.strip() for line in text.strip().split("\n") if line.strip())


def _encoded(encoder: Encoder, texts: Iterable[str]) -> Iterator[list[int]]:
    """Encode texts in batches."""
    rest = iter(texts)
    while batch := list(islice(rest, TEXTS_AT_ONCE)):
        yield from encoder.batch(batch)


def text_sources(path: Path) -> list[Path]:
    """Return the files of tokenize.kind=wikipedia, a directory's Parquet files by name; else the path."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]
