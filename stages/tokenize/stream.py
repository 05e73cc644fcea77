"""Questions and answers to MindRecord files: prompts and ground truths, and supervised examples."""

import contextlib
from collections.abc import Iterator, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any

from stages.base.context import Progress
from stages.fetch.records import Row, count_rows
from stages.tokenize.encode import IGNORED, EncodedRow, Encoder
from stages.tokenize.mindrecord import MindRecordFile
from stages.tokenize.source import Rows, read_batches
from stages.tokenize.supervised import Example, example_columns, write_examples
from stages.tokenize.tally import DROPPED, SAMPLES, RecordFile, Tally, TooLong


def tokenize_file(
    encoder: Encoder,
    rows: Rows[Row],
    target: Path,
    sft: Path | None = None,
    progress: Progress = lambda done, total: None,
    questions: set[int] | None = None,
    training: Set[int] = frozenset(),
) -> dict[str, Any]:
    """Stream questions into a MindRecord; return file stem -> data card as plain data.

    Args:
        encoder: text to ids.
        rows: the questions.
        target: NAME.mindrecord; must not exist. NAME.dropped.jsonl lists the rows left out, if there are any.
        sft: second MindRecord, for the supervised examples of the same rows.
        progress: called with (rows done, upper limit of rows) after each batch.
        questions: gets the key of every question written, see `question_key`.
        training: keys of the training questions; rows that repeat one are counted, and kept.

    Raise InputError if a file can't be read, more rows than dataset.max_bad_share are unusable (too long ones
    included), or no row is left.
    """
    total, config = count_rows(rows.files), encoder.config
    with contextlib.ExitStack() as stack:

        def target_for(file: Path, columns: dict[str, int]) -> RecordFile:
            most = min(total, rows.limit or total)
            writer = MindRecordFile.for_rows(file, columns, config.id_dtype, most)
            return RecordFile(file.name, target.with_suffix(DROPPED), writer=stack.enter_context(writer))

        truth = dict.fromkeys(("pretrain_ids", "loss_mask"), config.seq_length)
        grpo = target_for(target, {"prompt_ids": config.max_prompt_length, **truth})
        examples = target_for(sft, example_columns(config)) if sft else None
        for source, batch in read_batches(rows, lambda row: row.prompt, grpo):
            encoded, unusable = encoder.encode(batch, with_answers=examples is not None)
            grpo.drop_all(source, unusable)
            written = _write_grpo(encoder, grpo, source, encoded)
            _count_repeated(grpo, written, training)
            if questions is not None:
                questions.update(question_key(each.original.prompt) for each in written)
            if examples:
                _write_sft(encoder, examples, source, encoded)
            progress(grpo.rows_in, total)
        grpo.check(rows.files[0], encoder.dataset.max_bad_share)
        if examples:
            # rows that are too long here are still in `target`
            examples.check(rows.files[0], max_bad_share=1.0)
    return {made.writer.file.stem: made.to_json() for made in (grpo, examples) if made}


def question_key(question: str) -> int:
    """Return a number that is equal for questions that differ in white space only."""
    return hash(" ".join(question.split()))


def question_keys(rows: Rows[Row]) -> set[int]:
    """Return the keys of the readable questions."""
    readable = (row for file in rows.files for row in rows.read(file) if isinstance(row, Row))
    return {question_key(row.prompt) for row in islice(readable, rows.limit)}


def _count_repeated(target: RecordFile, written: Sequence[EncodedRow], training: Set[int]) -> None:
    for row in (each.original for each in written if training):
        if question_key(row.prompt) in training:
            target.repeated += 1
            if len(target.repeated_examples) < SAMPLES:
                target.repeated_examples.append({"line": row.line, "question": row.prompt})


def too_long(encoder: Encoder, row: EncodedRow) -> list[TooLong]:
    """Return the parts of a row that exceed their lengths."""
    config, keys = encoder.config, encoder.columns
    ask, truth = f"the prompt of {keys.prompt!r}", f"the ground truth of {keys.answer!r}"
    parts = (
        TooLong(ask, "prompt_ids", len(row.prompt), "tokenize.max_prompt_length", config.max_prompt_length),
        TooLong(truth, "pretrain_ids", len(row.solution), "tokenize.seq_length", config.seq_length),
    )
    return [part for part in parts if part.tokens > part.limit]


def padding_faults(encoder: Encoder, row: EncodedRow) -> list[str]:
    """Return the parts of a row that end with the padding id, which readers remove from the end."""
    pad, parts = encoder.ids.pad, (("prompt", row.prompt), ("ground truth", row.solution))
    faulty = [what for what, ids in parts if ids[-1:] == [pad]]
    token, remedy = encoder.tokenizer.id_to_token(pad), "set model.pad_token_id to another"
    return [f"the {what} ends with the padding token {token!r}: {remedy}" for what in faulty]


def usable_rows(encoder: Encoder, tally: Tally, file: Path, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows with a ground truth whose prompt fits; count the others in `tally`.

    The ground truth may have any length: programs that read it as text do not tokenize it.
    """
    encoded, unusable = encoder.encode(rows, with_answers=False)
    tally.drop_all(file, unusable)
    for entry in encoded:
        tally.add_length("prompt_ids", len(entry.prompt))
        long = [part for part in too_long(encoder, entry) if part.column == "prompt_ids"]
        if long:
            tally.drop(file, entry.original.line, *long)
        else:
            yield entry.original


def _write_grpo(
    encoder: Encoder, target: RecordFile, source: Path, rows: Sequence[EncodedRow]
) -> list[EncodedRow]:
    """Write the rows that fit, and with compat=mindrlhf the others truncated; return those written."""
    written = []
    for row in rows:
        target.add_length("prompt_ids", len(row.prompt))
        target.add_length("pretrain_ids", len(row.solution))
        long = too_long(encoder, row)
        faults: list[TooLong | str] = [*long, *padding_faults(encoder, row)]
        if faults and not encoder.compat:
            target.drop(source, row.original.line, *faults)
            continue
        target.truncated.update(part.column for part in long)
        written.append(row)
    if written:
        target.write(encoder.grpo_columns(written))
    decode = encoder.tokenizer.decode
    for row in written[: SAMPLES - len(target.samples)]:
        prompt = decode(row.prompt, skip_special_tokens=False)
        target.samples.append({"prompt": prompt, "solution": decode(row.solution)})
    return written


def sft_examples(encoder: Encoder, rows: Sequence[EncodedRow]) -> Iterator[Example]:
    """Yield prompt, complete answer and end id of each row; labels ignore the prompt.

    The prompt is encoded separately, so that its ids are those of the rollout.
    """
    for row in rows:
        learnt = [*row.answer, encoder.answer_end]
        yield Example(row.original.line, row.prompt + learnt, [IGNORED] * len(row.prompt) + learnt)


def _write_sft(encoder: Encoder, target: RecordFile, source: Path, rows: Sequence[EncodedRow]) -> None:
    length = encoder.config.sft_length
    target.rows_in += len(rows)
    examples = list(sft_examples(encoder, rows))
    written = write_examples(encoder, target, source, examples, "the example", length)
    for example in written[: SAMPLES - len(target.samples)]:
        target.samples.append({"text": encoder.tokenizer.decode(example.ids, skip_special_tokens=False)})
