"""Rows of text to rows of ids: chat template, truncation and padding.

Shapes: B rows, P max_prompt_length, S seq_length.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from stages.base.errors import InputError
from stages.fetch.config import ColumnsConfig, DatasetConfig
from stages.fetch.records import BadLine, Row
from stages.tokenize.chat import QUESTION, ChatTemplate, TemplateRefusalError
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.text import MARKER, Turn, columns, ground_truth, system_turns, user_text
from stages.tokenizer import SpecialIds
from stages.weights.dtypes import Array

IGNORED = -100  # label that the loss skips (PyTorch's and transformers' convention)
NO_TRUTH = f"the answer has no {MARKER!r} before a ground truth"


@dataclass(frozen=True)
class EncodedRow:
    """One row in ids, without padding."""

    original: Row
    prompt: list[int]
    solution: list[int]
    answer: list[int]
    """The complete answer; empty unless requested."""


def first_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids that a tokenizer puts before every text: Llama 3's <|begin_of_text|>, none for Qwen."""
    plain, framed = (tokenizer.encode("0", add_special_tokens=framed).ids for framed in (False, True))
    return list(framed[: framed.index(plain[0])]) if plain else []


class Encoder:
    """Conversion of rows to ids according to a TokenizeConfig."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        ids: SpecialIds,
        dataset: DatasetConfig,
        config: TokenizeConfig,
        template: ChatTemplate | None = None,
    ) -> None:
        """Set up the tokenizer (for compat=mindrlhf without '#' merges) and check the template."""
        self.tokenizer, self.ids, self.dataset, self.config = tokenizer, ids, dataset, config
        self.template = template
        if template is not None:
            template.check(system_turns(config) if config.kind == "grpo" else ())
        self.compat = config.compat == "mindrlhf"
        # A literal "<|endoftext|>" must not become the padding id: readers strip padding.
        tokenizer.encode_special_tokens = config.compat == "none"
        self.first = [] if self.compat else first_ids(tokenizer)

    @property
    def columns(self) -> ColumnsConfig:
        """Keys to read from JSON rows."""
        return columns(self.dataset, self.config)

    @functools.cached_property
    def template_end(self) -> int | None:
        """Id that ends an answer in the chat template; None without a template that renders answers."""
        if self.template is None:
            return None
        turns = [*system_turns(self.config), Turn("user", QUESTION), Turn("assistant", "42")]
        try:
            *_, answer, _ = self.template.pieces(turns)
        except TemplateRefusalError:
            return None
        (ids,) = self.batch_parts([self.template.split(answer.text)])
        return ids[-1] if ids else None

    @property
    def answer_end(self) -> int:
        """Id that ends a supervised answer: the template's if it ends completions, else the first end id."""
        end = self.template_end
        return end if end is not None and end in self.ids.eos else self.ids.eos[0]

    def batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of plain texts."""
        return [entry.ids for entry in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def batch_parts(self, rows: Sequence[Sequence[str | int]]) -> list[list[int]]:
        """Return the ids of rows of plain texts and special tokens, see ChatTemplate.split."""
        ids = iter(self.batch([part for row in rows for part in row if isinstance(part, str)]))
        return [[i for part in row for i in ([part] if isinstance(part, int) else next(ids))] for row in rows]

    def _prompts(self, rows: Sequence[Row]) -> list[list[int]]:
        if self.template is None:
            return [[*self.first, *ids] for ids in self.batch([user_text(row, self.config) for row in rows])]
        first = system_turns(self.config)
        parts = []
        for row in rows:
            turns = [*first, Turn("user", user_text(row, self.config))]
            try:
                parts.append(self.template.split(self.template.render(turns, generation=True)))
            except TemplateRefusalError as error:
                remedy = "correct the template, or set tokenize.chat_template=false"
                raise InputError(self.template.path, None, f"{error} (row {row.line})", remedy) from error
        return self.batch_parts(parts)

    def encode(self, rows: Sequence[Row], with_answers: bool) -> tuple[list[EncodedRow], list[BadLine]]:
        """Encode rows at full length; return the usable ones in order, and the others with reasons.

        The complete answers are encoded on request only (for supervised examples).
        """
        usable, texts, dropped = [], [], []
        for row in rows:
            text = ground_truth(row, self.dataset, self.config)
            if not (text if self.compat else text.strip()):
                reason = NO_TRUTH if self.dataset.solution == "after_marker" else "the answer is blank"
                dropped.append(BadLine(row.line, reason))
            elif not self.compat and not row.prompt.strip():
                dropped.append(BadLine(row.line, "the prompt is blank"))
            else:
                usable.append(row)
                texts.append(text)
        prompts, solutions = self._prompts(usable), self.batch(texts)
        answers = self.batch([row.answer for row in usable]) if with_answers else [[] for _ in usable]
        encoded = [EncodedRow(*parts) for parts in zip(usable, prompts, solutions, answers, strict=True)]
        return encoded, dropped

    def grpo_columns(self, rows: Sequence[EncodedRow]) -> dict[str, Array]:
        """Return prompt_ids [B, P], pretrain_ids [B, S] and loss_mask [B, S]; int64, right-padded.

        With compat=mindrlhf loss_mask is what rlhf_data.py writes: ones over the ground truth, padded
        with the pad id, then zero over as many positions as the prompt has. Otherwise it is one over
        the ground truth and zero elsewhere. Source: mindrlhf e8a8fc1,
        examples/grpo/qwen_grpo_tutorial/rlhf_data.py:62-107.
        """
        prompts = [row.prompt[: self.config.max_prompt_length] for row in rows]
        solutions = [row.solution[: self.config.seq_length] for row in rows]
        filler = self.ids.pad if self.compat else 0
        mask = pad([[1] * len(ids) for ids in solutions], self.config.seq_length, filler)
        if self.compat:
            for row_mask, prompt in zip(mask, prompts, strict=True):
                row_mask[: len(prompt)] = 0
        return {
            "prompt_ids": pad(prompts, self.config.max_prompt_length, self.ids.pad),
            "pretrain_ids": pad(solutions, self.config.seq_length, self.ids.pad),
            "loss_mask": mask,
        }


def pad(rows: Sequence[Sequence[int]], length: int, value: int) -> Array:
    """Return rows of at most `length` ids as int64 [rows, length], filled up with `value` on the right."""
    result = np.full((len(rows), length), value, np.int64)
    for target, ids in zip(result, rows, strict=True):
        target[: len(ids)] = ids
    return result
