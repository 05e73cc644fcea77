"""A random model of the recipe's family with the user's own tokenizer and vocabulary."""

from __future__ import annotations

from pathlib import Path

from stages.fetch import tokenizer_files
from stages.fetch.builtin import write_model
from stages.models.config import ModelConfig


def write(model: ModelConfig, tokenizer: Path, seed: int, output: Path) -> None:
    """Write it as a Hugging Face directory.

    Args:
        model: the small shape; its vocab_size is the user's.
        tokenizer: the user's directory.
        seed: of the weights.
        output: a directory that is made.

    Raises:
        InputError: `tokenizer` holds no Qwen2 tokenizer, or one with more ids than the vocabulary.
    """
    output.mkdir(parents=True)
    tokenizer_files.take(tokenizer, output)
    tokenizer_files.check_fit(output, model.vocab_size)
    write_model(model, tokenizer_files.ending_ids(output), seed, output)
