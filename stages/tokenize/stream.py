"""Stream one JSON lines file into MindRecord files, naming every row that is left out."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from stages.errors import InputError
from stages.fetch.jsonl import BadLine, Row, read_lines
from stages.tokenize.card import SAMPLES, FileCard
from stages.tokenize.encode import EncodedRow, Encoder, sft_ids
from stages.tokenize.records import RecordWriter

ROWS_PER_BATCH = 1024  # enough for the Rust threads, little enough for memory
DROPPED = ".dropped.jsonl"

Note = Callable[[int, str], None]
Progress = Callable[[int, int], None]


@dataclass
class _Target:
    """One MindRecord file in the making."""

    writer: RecordWriter
    card: FileCard
    note: Note


def tokenize_file(
    encoder: Encoder,
    source: Path,
    target: Path,
    limit: int | None = None,
    sft: Path | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Stream one JSON lines file into a MindRecord, and on request supervised examples into a second.

    Args:
        encoder: text to ids.
        source: JSON lines.
        target: file to write, NAME.mindrecord; must not exist. NAME.dropped.jsonl beside it lists the
            rows left out, if there are any.
        limit: use only the first so many good rows; None: all.
        sft: file for the supervised examples of the same rows.
        progress: called with (rows done, lines in the file) after each batch.

    Returns:
        file stem -> data card as plain data.

    Raises:
        InputError: the source can't be read, has too many bad lines, or no row is left.
    """
    lines = count_lines(source)
    config, cards = encoder.config, {target.stem: FileCard()}
    solution = dict.fromkeys(("pretrain_ids", "loss_mask"), config.seq_length)
    with contextlib.ExitStack() as stack:
        dropped: TextIO | None = None

        def target_for(file: Path, columns: dict[str, int]) -> _Target:
            def note(line: int, reason: str) -> None:
                nonlocal dropped
                if dropped is None:
                    dropped = stack.enter_context(target.with_suffix(DROPPED).open("w", encoding="utf-8"))
                entry = {"file": file.name, "source": source.name, "line": line, "reason": reason}
                dropped.write(json.dumps(entry, ensure_ascii=False) + "\n")

            writer = RecordWriter(file, columns, config.id_dtype, min(lines, limit or lines))
            stack.enter_context(writer)
            return _Target(writer, cards.setdefault(file.stem, FileCard()), note)

        grpo = target_for(target, {"prompt_ids": config.max_prompt_length, **solution})
        examples = target_for(sft, dict.fromkeys(("input_ids", "labels"), config.sft_length)) if sft else None
        for done, rows in _batches(encoder, source, limit, grpo):
            encoded, unusable = encoder.encode(rows, with_answers=examples is not None)
            for entry in unusable:
                _drop(grpo, entry.line, entry.reason)
            _write_grpo(encoder, grpo, encoded)
            if examples:
                _write_sft(encoder, examples, encoded)
            progress(done, lines)
        for made in filter(None, (grpo, examples)):
            _require_rows(source, made.card)
    return {stem: card.to_json() for stem, card in cards.items()}


def count_lines(source: Path) -> int:
    """Lines of a file, at memory speed."""
    try:
        with source.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) + 1
    except OSError as error:
        raise InputError(source, None, f"can't be read: {error.strerror}", "check the path") from error


def _batches(
    encoder: Encoder, source: Path, limit: int | None, target: _Target
) -> Iterator[tuple[int, list[Row]]]:
    """The good rows in batches with the number of lines read so far; bad lines are noted in `target`."""
    card, seen, bad = target.card, set[int](), 0
    first: BadLine | None = None

    def good_rows() -> Iterator[Row]:
        nonlocal bad, first
        for entry in read_lines(source, encoder.columns):
            card.rows_in += 1
            if isinstance(entry, Row):
                key = hash(entry.prompt)
                card.duplicates += key in seen
                seen.add(key)
                yield entry
            else:
                bad, first = bad + 1, first or entry
                _drop(target, entry.line, entry.reason)

    rows = islice(good_rows(), limit)
    while batch := list(islice(rows, ROWS_PER_BATCH)):
        yield card.rows_in, batch
    if first and bad / card.rows_in > encoder.dataset.max_bad_share:
        rule = f"{first.reason} ({bad} bad lines of {card.rows_in})"
        remedy = "mend the lines, set dataset.columns, or raise dataset.max_bad_share"
        raise InputError(f"{source}:{first.line}", None, rule, remedy)


def _require_rows(source: Path, card: FileCard) -> None:
    if not card.rows_out:
        reasons = "; ".join(f"{reason} ({count} rows)" for reason, count in card.dropped.most_common(3))
        remedy = "check dataset.columns and the lengths in tokenize"
        raise InputError(source, None, f"no row is left: {reasons or 'it is empty'}", remedy)


def _drop(target: _Target, line: int, reason: str) -> None:
    target.card.dropped[reason] += 1
    target.note(line, reason)


def _write_grpo(encoder: Encoder, target: _Target, rows: list[EncodedRow]) -> None:
    config, card = encoder.config, target.card
    truncate = encoder.compat or config.over_long == "truncate"
    kept = []
    for row in rows:
        card.add_length("prompt_ids", len(row.prompt))
        card.add_length("pretrain_ids", len(row.solution))
        long = [
            column
            for column, ids, length in (
                ("prompt_ids", row.prompt, config.max_prompt_length),
                ("pretrain_ids", row.solution, config.seq_length),
            )
            if len(ids) > length
        ]
        if long and not truncate:
            key = "max_prompt_length" if long[0] == "prompt_ids" else "seq_length"
            _drop(target, row.line, f"{long[0]} is longer than tokenize.{key}")
            continue
        card.truncated.update(long)
        kept.append(row)
    if kept:
        columns = encoder.grpo_columns(kept)
        target.writer.write(columns)
        card.rows_out += len(kept)
    for row in kept[: SAMPLES - len(card.samples)]:
        decode = encoder.tokenizer.decode
        texts = {"prompt": decode(row.prompt, skip_special_tokens=False), "solution": decode(row.solution)}
        card.samples.append(texts)


def _write_sft(encoder: Encoder, target: _Target, rows: list[EncodedRow]) -> None:
    config, card = encoder.config, target.card
    card.rows_in += len(rows)
    kept = []
    for row in rows:
        tokens = len(sft_ids(row, encoder.ids))
        card.add_length("input_ids", tokens)
        if tokens > config.sft_length and config.over_long == "drop":
            _drop(target, row.line, "the example is longer than tokenize.sft_length")
            continue
        if tokens > config.sft_length:
            card.truncated["input_ids"] += 1
        kept.append(row)
    if kept:
        target.writer.write(encoder.sft_columns(kept))
        card.rows_out += len(kept)
    for row in kept[: SAMPLES - len(card.samples)]:
        whole = encoder.tokenizer.decode(sft_ids(row, encoder.ids), skip_special_tokens=False)
        card.samples.append({"text": whole})
