"""Conversations as supervised examples for mindformers: ids, and labels of what the assistant says.

Shapes: B examples, L sft_length + 1 (mindformers cuts the last id off the inputs and the first off the
labels). Source: mindformers 1.6.0, models/llama/llama.py:630-660 (the cut, ignore_token_id -100) and
dataset/handler/base_handler.py (columns input_ids and labels).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.fetch.records import BadLine, count_rows, encoding_fault, read_records, text_fault
from stages.tokenize.chat import ChatTemplate, TemplateRefusalError
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.encode import IGNORED, Encoder, pad
from stages.tokenize.mindrecord import MindRecordFile
from stages.tokenize.source import Rows, read_batches
from stages.tokenize.tally import DROPPED, SAMPLES, RecordFile, TooLong
from stages.tokenize.text import Turn, system_turns

ALPACA = ("instruction", "input", "output")
SHAREGPT, MESSAGES = "conversations", "messages"
ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system",
    "tool": "tool",
}  # fmt: skip
"""Name of the speaker -> role."""
UNREAD = ("system", "history", "tools", "tool_calls", "function_call", "reasoning_content")
"""Keys of rows and messages in use elsewhere; a conversation without their content would be another one."""
EMPTY: tuple[object, ...] = (None, "", "[]", [], {})
"""Values of such keys without content; some datasets have lists as JSON text."""


@dataclass(frozen=True)
class Conversation:
    """One readable row."""

    line: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Example:
    """One conversation in ids, without padding."""

    line: int
    ids: list[int]
    labels: list[int]
    """Same as `ids`, but IGNORED outside the assistant's turns."""


def tokenize_conversations(encoder: Encoder, sources: Sequence[Path], target: Path) -> dict[str, Any]:
    """Stream conversations (tokenize.kind alpaca or conversations) into a MindRecord; see tokenize_file."""
    config = encoder.config
    joined = config.compat == "mindformers"
    rows = Rows(sources, partial(read_conversations, kind=config.kind, joined=joined))
    columns, most = example_columns(config), count_rows(rows.files)
    with MindRecordFile.for_rows(target, columns, config.id_dtype, most) as writer:
        made = RecordFile(target.name, target.with_suffix(DROPPED), writer=writer)
        for source, batch in read_batches(rows, lambda row: str(row.turns), made):
            encoded, unusable = encode(encoder, batch)
            made.drop_all(source, unusable)
            length = config.sft_length + 1
            written = write_examples(encoder, made, source, encoded, "the conversation", length)
            for row in written[: SAMPLES - len(made.samples)]:
                learnt = [label for label in row.labels if label != IGNORED]
                decoded = encoder.tokenizer.decode_batch([row.ids, learnt], skip_special_tokens=False)
                made.samples.append(dict(zip(("text", "learnt"), decoded, strict=True)))
        made.check(sources[0], encoder.dataset.max_bad_share)
    return {target.stem: made.to_json()}


def example_columns(config: TokenizeConfig) -> dict[str, int]:
    """Return the columns of supervised examples and their length."""
    return dict.fromkeys(("input_ids", "labels"), config.sft_length + 1)


def check_ending(encoder: Encoder) -> None:
    """Refuse a template whose answers end with a token that ends no completion.

    A model that learnt from such examples would write on after its answers. Base models are the usual case:
    their end id is not that of their template.
    """
    last, ends, template = encoder.template_end, encoder.ids.eos, encoder.template
    assert isinstance(template, ChatTemplate)  # its rules require one
    if last is None or last in ends:  # a template that refuses answers refuses the rows, with the reason
        return
    token, listed = encoder.tokenizer.id_to_token(last), ",".join(map(str, ends))
    rule = f"its chat template ends answers with {token!r} ({last}), but completions end with [{listed}]"
    raise InputError(template.path, None, rule, f"set model.eos_token_id=[{last},{listed}]")


def read_conversations(path: Path, kind: str, joined: bool = False) -> Iterator[Conversation | BadLine]:
    """Yield every row of `path` as a conversation, or why it is none; `joined`: see _instruction."""
    instruction = partial(_instruction, joined=joined)
    keys, turns_of = (ALPACA, instruction) if kind == "alpaca" else ((SHAREGPT, MESSAGES), _messages)
    for record in read_records(path, (*keys, *UNREAD)):
        if isinstance(record, BadLine):
            yield record
            continue
        turns = _unread(record.values) or turns_of(record.values)
        if isinstance(turns, str):
            yield BadLine(record.line, turns)
        else:
            yield Conversation(record.line, tuple(turns))


def _instruction(values: dict[str, Any], joined: bool) -> list[Turn] | str:
    """Return the two turns of an instruction with or without input, or a description of the fault.

    `joined`: the input follows after a colon in place of a full stop, as mindformers' alpaca_converter.py
    writes it, not on a line of its own.
    """
    extra = values.get("input") or ""
    fault = (
        text_fault(values, "instruction")
        or text_fault({"input": extra or "none"}, "input")
        or text_fault(values, "output")
    )
    if fault:
        return fault
    question = values["instruction"]
    if extra:
        question = f"{question.removesuffix('.')}: {extra}" if joined else f"{question}\n{extra}"
    return [Turn("user", question), Turn("assistant", values["output"])]


def _messages(values: dict[str, Any]) -> list[Turn] | str:
    """Return the turns of a conversation, or a description of the fault."""
    key = SHAREGPT if values.get(SHAREGPT) is not None else MESSAGES
    messages = values.get(key)
    if not isinstance(messages, list) or not messages:
        return f"must have a list of turns under {SHAREGPT!r} or {MESSAGES!r}"
    turns = []
    for number, message in enumerate(messages, start=1):
        turn = _turn(message) if isinstance(message, Mapping) else "is no object"
        if isinstance(turn, str):
            return f"turn {number} {turn}"
        turns.append(turn)
    if not any(turn.role == "assistant" for turn in turns):
        return "the assistant says nothing"
    if next(turn for turn in turns if turn.role != "system").role == "assistant":
        return "the assistant speaks first"
    return turns


def _turn(message: Mapping[str, Any]) -> Turn | str:
    name = message.get("role", message.get("from"))
    text = message.get("content", message.get("value"))
    if not isinstance(name, str) or name not in ROLES:
        return f"is by {name!r}, which is none of {', '.join(ROLES)}"
    if fault := _unread(message):
        return fault
    if not isinstance(text, str) or not text:
        return "has no text"
    return encoding_fault(text, "text") or Turn(ROLES[name], text)


def _unread(values: Mapping[str, Any]) -> str:
    """Return which content of a row or message would be lost; an empty string if none."""
    key = next((key for key in UNREAD if values.get(key) not in EMPTY), None)
    return f"has {key!r}, which is not read: write it into the turns' text, or remove it" if key else ""


def encode(encoder: Encoder, rows: Sequence[Conversation]) -> tuple[list[Example], list[BadLine]]:
    """Encode conversations at full length; return the usable ones in order, and the others with reasons."""
    template = encoder.template
    assert isinstance(template, ChatTemplate)  # its rules require one for these kinds
    parts: list[list[str | int]] = []
    spans: list[tuple[int, bool]] = []  # line and `learnt` of each part
    dropped = []
    for row in rows:
        first = [] if row.turns[0].role == "system" else system_turns(encoder.config)
        try:
            pieces = template.pieces([*first, *row.turns])
        except TemplateRefusalError as error:
            dropped.append(BadLine(row.line, str(error)))
            continue
        spans += [(row.line, piece.learnt) for piece in pieces]
        parts += [template.split(piece.text) for piece in pieces]
    examples: dict[int, Example] = {}
    for (line, learnt), ids in zip(spans, encoder.batch_parts(parts), strict=True):
        example = examples.setdefault(line, Example(line, [], []))
        example.ids.extend(ids)
        example.labels.extend(ids if learnt else [IGNORED] * len(ids))
    return list(examples.values()), dropped


def write_examples(
    encoder: Encoder, target: RecordFile, source: Path, rows: Sequence[Example], what: str, length: int
) -> list[Example]:
    """Write examples of at most `length` ids, and longer ones by tokenize.over_long; return those written.

    The columns input_ids and labels [B, L] are right-padded; labels are not shifted. `what` is the kind of
    example, for messages.
    """
    config, written = encoder.config, []
    for row in rows:
        target.add_length("input_ids", len(row.ids))
        if len(row.ids) > length and config.over_long == "drop":
            tokens = len(row.ids) - (length - config.sft_length)
            long = TooLong(what, what, tokens, "tokenize.sft_length", config.sft_length)
            target.drop(source, row.line, long)
        elif max(row.labels[:length]) == IGNORED:
            target.drop(source, row.line, "no word of the assistant lies within tokenize.sft_length")
        else:
            target.truncated.update(["input_ids"] if len(row.ids) > length else [])
            written.append(row)
    if written:
        width = config.sft_length + 1
        ids, labels = [row.ids[:length] for row in written], [row.labels[:length] for row in written]
        target.write({"input_ids": pad(ids, width, encoder.ids.pad), "labels": pad(labels, width, IGNORED)})
    return written
