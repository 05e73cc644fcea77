"""Prompts with their ground truths, supervised examples, and the decoding of ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from stages.base.tags import continued
from stages.models.config import ModelConfig
from stages.tokenize.records import read_columns
from stages.tokenizer import SpecialIds, keep_tags, load, special_ids

IGNORED = -100  # label of a token that the supervised loss leaves out


@dataclass(frozen=True)
class Prompts:
    """R prompts; all arrays have R rows."""

    ids: NDArray[np.int32]
    """[R, S], padded on the right; S is the longest prompt's length."""
    lengths: NDArray[np.int32]
    """[R] tokens."""
    texts: tuple[str, ...]
    """Texts of the prompts."""
    solutions: tuple[str, ...]
    """Ground truths."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns of the dataset by name, for reward functions that accept them."""

    def __len__(self) -> int:
        """Return R."""
        return len(self.lengths)

    def take(self, rows: Sequence[int] | NDArray[Any]) -> Prompts:
        """Return some rows in the given order; S stays."""
        return Prompts(
            self.ids[rows],
            self.lengths[rows],
            tuple(self.texts[i] for i in rows),
            tuple(self.solutions[i] for i in rows),
            {name: [column[i] for i in rows] for name, column in self.columns.items()},
        )

    def arguments(self, group_size: int) -> dict[str, Sequence[Any]]:
        """Return the named arguments of reward functions for `group_size` completions of each prompt."""
        columns = {**self.columns, "prompts": self.texts}
        return {
            name: [value for value in column for _ in range(group_size)] for name, column in columns.items()
        }

    def continued(self, completions: Sequence[str]) -> list[str]:
        """Return completions, equally many of each prompt, as rewards read them: with opened tags."""
        each = len(completions) // len(self)
        return [continued(self.texts[i // each], text) for i, text in enumerate(completions)]


@dataclass(frozen=True)
class Vocabulary:
    """Tokenizer and special ids."""

    tokenizer: Tokenizer
    special: SpecialIds

    @classmethod
    def read(cls, fetched: Path, model: ModelConfig) -> Vocabulary:
        """Read the vocabulary of a fetched Hugging Face directory."""
        return cls(keep_tags(load(fetched)), special_ids(fetched, model))

    def texts(self, ids: NDArray[Any], lengths: NDArray[Any]) -> list[str]:
        """Decode the first `length` ids of each row, without special tokens except for tags."""
        rows = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
        return list(self.tokenizer.decode_batch(rows, skip_special_tokens=True))


def true_lengths(ids: NDArray[Any], pad: int) -> NDArray[np.int32]:
    """Return the length of each right-padded row [R, L]; a padding id inside a row counts."""
    filled = ids != pad
    return np.where(filled.any(1), ids.shape[1] - filled[:, ::-1].argmax(1), 0).astype(np.int32)


def read_prompts(records: Path, vocabulary: Vocabulary) -> Prompts:
    """Read prompts and ground truths from a MindRecord of the tokenize stage."""
    columns = read_columns(records, ("prompt_ids", "pretrain_ids"))
    ids, answers = columns["prompt_ids"].astype(np.int32), columns["pretrain_ids"]
    lengths = true_lengths(ids, vocabulary.special.pad)
    return Prompts(
        ids[:, : lengths.max()],
        lengths,
        tuple(vocabulary.texts(ids, lengths)),
        tuple(vocabulary.texts(answers, true_lengths(answers, vocabulary.special.pad))),
    )


@dataclass(frozen=True)
class Examples:
    """R supervised examples: prompts and the answers to learn."""

    prompt: NDArray[np.int32]
    """[R, S], padded on the right."""
    length: NDArray[np.int32]
    """[R] tokens of the prompts."""
    completion: NDArray[np.int32]
    """[R, T], padded on the right."""
    mask: NDArray[np.float32]
    """[R, T], 1 on the answers' tokens; of a conversation, on every turn of the assistant."""

    def __len__(self) -> int:
        """Return R."""
        return len(self.length)

    def without(self, prompts: Prompts) -> Examples:
        """Return the examples that contain none of `prompts`."""
        excluded = {tuple(row[:length]) for row, length in zip(prompts.ids, prompts.lengths, strict=True)}
        rows = zip(self.prompt, self.length, strict=True)
        keep_row = np.array([tuple(row[:length]) not in excluded for row, length in rows], bool)
        return Examples(
            self.prompt[keep_row], self.length[keep_row], self.completion[keep_row], self.mask[keep_row]
        )


def read_examples(records: Path) -> Examples:
    """Read examples from a MindRecord with input_ids and labels; each row is a prompt and then an answer."""
    columns = read_columns(records, ("input_ids", "labels"))
    ids, learned = columns["input_ids"].astype(np.int32), columns["labels"] != IGNORED
    length = learned.argmax(1).astype(np.int32)
    end = ids.shape[1] - learned[:, ::-1].argmax(1)
    S, T = int(length.max()), int((end - length).max())
    prompt, completion = np.zeros((len(ids), S), np.int32), np.zeros((len(ids), T), np.int32)
    mask = np.zeros((len(ids), T), np.float32)
    for i, (start, stop) in enumerate(zip(length, end, strict=True)):
        prompt[i, :start] = ids[i, :start]
        completion[i, : stop - start] = ids[i, start:stop]
        mask[i, : stop - start] = learned[i, start:stop]  # later turns of the user lie between
    return Examples(prompt, length, completion, mask)
