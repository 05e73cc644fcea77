"""Stream questions and answers into MindRecord files: prompts and ground truths, and supervised examples."""

import contextlib
from collections.abc import Sequence, Set
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from stages.fetch.jsonl import Row, read_lines
from stages.tokenize.card import SAMPLES
from stages.tokenize.encode import EncodedRow, Encoder, sft_ids
from stages.tokenize.records import RecordWriter
from stages.tokenize.source import DROPPED, Ledger, Progress, Read, Source, Target, TooLong, count_rows


def tokenize_file(
    encoder: Encoder,
    sources: Sequence[Path],
    target: Path,
    limit: int | None = None,
    sft: Path | None = None,
    progress: Progress = lambda done, total: None,
    read: Read[Row] | None = None,
    questions: set[int] | None = None,
    training: Set[int] = frozenset(),
) -> dict[str, Any]:
    """Stream files of questions into a MindRecord, and on request supervised examples into a second.

    Args:
        encoder: text to ids.
        sources: JSON lines, JSON arrays or Parquet, one after the other.
        target: file to write, NAME.mindrecord; must not exist. NAME.dropped.jsonl beside it lists the
            rows left out, if there are any.
        limit: use only the first so many good rows; None: all.
        sft: file for the supervised examples of the same rows.
        progress: called with (rows done, rows in the files at most) after each batch.
        read: rows of one file; None: all that encoder.columns name.
        questions: takes the key of every question written, see `question_key`.
        training: keys of the training questions; rows that repeat one are counted, and kept.

    Returns:
        file stem -> data card as plain data.

    Raises:
        InputError: a source can't be read, more rows than dataset.max_bad_share are unusable (too long ones
            included), or no row is left.
    """
    total, config = count_rows(sources), encoder.config
    rows = Source(
        sources,
        read or partial(read_lines, columns=encoder.columns),
        lambda row: row.prompt,
        limit,
    )
    solution = dict.fromkeys(("pretrain_ids", "loss_mask"), config.seq_length)
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(Ledger(target.with_suffix(DROPPED)))

        def target_for(file: Path, columns: dict[str, int]) -> Target:
            writer = RecordWriter(file, columns, config.id_dtype, min(total, limit or total))
            return Target(file.name, ledger, writer=stack.enter_context(writer))

        grpo = target_for(target, {"prompt_ids": config.max_prompt_length, **solution})
        width = dict.fromkeys(("input_ids", "labels"), config.sft_length + 1)
        examples = target_for(sft, width) if sft else None
        for source, batch in rows.batches(grpo):
            encoded, unusable = encoder.encode(batch, with_answers=examples is not None)
            for entry in unusable:
                grpo.drop(source, entry.line, entry.reason)
            written = _write_grpo(encoder, grpo, source, encoded)
            _compare(grpo, written, training)
            if questions is not None:
                questions.update(question_key(row.question) for row in written)
            if examples:
                _write_sft(encoder, examples, source, encoded)
            progress(grpo.card.rows_in, total)
        grpo.check(sources[0], encoder.dataset.max_bad_share)
        if examples:
            examples.check(sources[0], max_bad_share=1.0)  # its rows are used all the same, in `target`
    return {made.writer.file.stem: made.card.to_json() for made in (grpo, examples) if made}


def question_key(question: str) -> int:
    """Return a number that is equal for questions that differ in white space only."""
    return hash(" ".join(question.split()))


def question_keys(sources: Sequence[Path], read: Read[Row], limit: int | None) -> set[int]:
    """Return the keys of the readable questions of some files."""
    rows = (row for source in sources for row in read(source) if isinstance(row, Row))
    return {question_key(row.prompt) for row in islice(rows, limit)}


def _compare(target: Target, rows: Sequence[EncodedRow], training: Set[int]) -> None:
    """Count the rows whose question occurs in training."""
    for row in rows if training else ():
        if question_key(row.question) in training:
            target.card.repeated += 1
            if len(target.card.repeated_examples) < SAMPLES:
                target.card.repeated_examples.append({"line": row.line, "question": row.question})


def too_long(encoder: Encoder, row: EncodedRow) -> list[TooLong]:
    """Return the parts of a row that exceed their lengths."""
    config, keys = encoder.config, encoder.columns
    parts = (
        (f"the prompt of {keys.prompt!r}", "prompt_ids", row.prompt, "max_prompt_length"),
        (f"the ground truth of {keys.answer!r}", "pretrain_ids", row.solution, "seq_length"),
    )
    return [
        TooLong(what, column, len(ids), f"tokenize.{key}", getattr(config, key))
        for what, column, ids, key in parts
        if len(ids) > getattr(config, key)
    ]


def _write_grpo(
    encoder: Encoder, target: Target, source: Path, rows: Sequence[EncodedRow]
) -> list[EncodedRow]:
    """Write the rows that fit, and with compat=mindrlhf the others cut; return those written."""
    card = target.card
    rows_kept = []
    for row in rows:
        card.add_length("prompt_ids", len(row.prompt))
        card.add_length("pretrain_ids", len(row.solution))
        long = too_long(encoder, row)
        if long and not encoder.compat:
            target.drop(source, row.line, *long)
            continue
        card.truncated.update(part.column for part in long)
        rows_kept.append(row)
    if rows_kept:
        target.write(encoder.grpo_columns(rows_kept), len(rows_kept))
    for row in rows_kept[: target.samples_wanted]:
        decode = encoder.tokenizer.decode
        texts = {"prompt": decode(row.prompt, skip_special_tokens=False), "solution": decode(row.solution)}
        card.samples.append(texts)
    return rows_kept


def _write_sft(encoder: Encoder, target: Target, source: Path, rows: list[EncodedRow]) -> None:
    config, card = encoder.config, target.card
    card.rows_in += len(rows)
    rows_kept = []
    for row in rows:
        tokens = len(sft_ids(row, encoder.ids))
        card.add_length("input_ids", tokens)
        if tokens > config.sft_length and config.over_long == "drop":
            long = TooLong("the example", "the example", tokens, "tokenize.sft_length", config.sft_length)
            target.drop(source, row.line, long)
            continue
        if tokens > config.sft_length:
            card.truncated["input_ids"] += 1
        rows_kept.append(row)
    if rows_kept:
        target.write(encoder.sft_columns(rows_kept), len(rows_kept))
    for row in rows_kept[: target.samples_wanted]:
        text = encoder.tokenizer.decode(sft_ids(row, encoder.ids), skip_special_tokens=False)
        card.samples.append({"text": text})
