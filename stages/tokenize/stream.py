"""Stream questions and answers into MindRecord files: prompts and ground truths, and supervised examples."""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stages.fetch.jsonl import Row, read_lines
from stages.tokenize.encode import EncodedRow, Encoder, sft_ids
from stages.tokenize.records import RecordWriter
from stages.tokenize.source import DROPPED, Ledger, Progress, Read, Source, Target, count_rows


def tokenize_file(
    encoder: Encoder,
    sources: Sequence[Path],
    target: Path,
    limit: int | None = None,
    sft: Path | None = None,
    progress: Progress = lambda done, total: None,
    read: Read[Row] | None = None,
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

    Returns:
        file stem -> data card as plain data.

    Raises:
        InputError: a source can't be read, has too many bad rows, or no row is left.
    """
    total, config = count_rows(sources), encoder.config
    rows = Source(
        sources,
        read or partial(read_lines, columns=encoder.columns),
        lambda row: row.prompt,
        encoder.dataset.max_bad_share,
        limit,
    )
    solution = dict.fromkeys(("pretrain_ids", "loss_mask"), config.seq_length)
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(Ledger(target.with_suffix(DROPPED)))

        def target_for(file: Path, columns: dict[str, int]) -> Target:
            writer = RecordWriter(file, columns, config.id_dtype, min(total, limit or total))
            return Target(stack.enter_context(writer), ledger)

        grpo = target_for(target, {"prompt_ids": config.max_prompt_length, **solution})
        width = dict.fromkeys(("input_ids", "labels"), config.sft_length + 1)
        examples = target_for(sft, width) if sft else None
        for source, batch in rows.batches(grpo):
            encoded, unusable = encoder.encode(batch, with_answers=examples is not None)
            for entry in unusable:
                grpo.drop(source, entry.line, entry.reason)
            _write_grpo(encoder, grpo, source, encoded)
            if examples:
                _write_sft(encoder, examples, source, encoded)
            progress(grpo.card.rows_in, total)
        made = list(filter(None, (grpo, examples)))
        for made_target in made:
            made_target.require_rows(sources[0])
    return {made_target.writer.file.stem: made_target.card.to_json() for made_target in made}


def _write_grpo(encoder: Encoder, target: Target, source: Path, rows: list[EncodedRow]) -> None:
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
            target.drop(source, row.line, f"{long[0]} is longer than tokenize.{key}")
            continue
        card.truncated.update(long)
        kept.append(row)
    if kept:
        target.write(encoder.grpo_columns(kept), len(kept))
    for row in kept[: target.samples_wanted]:
        decode = encoder.tokenizer.decode
        texts = {"prompt": decode(row.prompt, skip_special_tokens=False), "solution": decode(row.solution)}
        card.samples.append(texts)


def _write_sft(encoder: Encoder, target: Target, source: Path, rows: list[EncodedRow]) -> None:
    config, card = encoder.config, target.card
    card.rows_in += len(rows)
    kept = []
    for row in rows:
        tokens = len(sft_ids(row, encoder.ids))
        card.add_length("input_ids", tokens)
        if tokens > config.sft_length and config.over_long == "drop":
            target.drop(source, row.line, "the example is longer than tokenize.sft_length")
            continue
        if tokens > config.sft_length:
            card.truncated["input_ids"] += 1
        kept.append(row)
    if kept:
        target.write(encoder.sft_columns(kept), len(kept))
    for row in kept[: target.samples_wanted]:
        whole = encoder.tokenizer.decode(sft_ids(row, encoder.ids), skip_special_tokens=False)
        card.samples.append({"text": whole})
