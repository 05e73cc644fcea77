"""Stage fetch: a Hugging Face directory with a Qwen2 model and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stages.context import Context
from stages.errors import InputError
from stages.fetch import arith, builtin, local, tokenizer_files
from stages.fetch.config import TOKENIZER_FILES, DatasetConfig, split_files
from stages.fetch.jsonl import Row, read_lines
from stages.model_config import ModelConfig


def run(context: Context) -> None:
    """Stage entry. `seed` is needed for random weights only, `dataset` where a tokenizer must be trained."""
    model = context.section(ModelConfig, "model")
    dataset = context.section(DatasetConfig, "dataset") if context.config.get("dataset") else None
    seed = context.seed if model.source == "builtin" else 0
    fetch_model(model, dataset, seed, context.output)


def fetch_model(model: ModelConfig, dataset: DatasetConfig | None, seed: int, output: Path) -> None:
    """Write or link the model and its tokenizer into `output`.

    Args:
        model: what to fetch.
        dataset: text to train the tokenizer on (source=builtin without model.tokenizer_path).
        seed: of random weights and generated text.
        output: an existing, empty directory.

    Raises:
        InputError: a file is missing or malformed, or the vocabulary does not fit.
        ConfigError: config.json of a local model disagrees with the model section.
    """
    if model.source == "local":
        local.link(model, output)
        if model.tokenizer_path is None:
            tokenizer_files.complete(output)
    if model.tokenizer_path is not None:
        for name in TOKENIZER_FILES:
            (output / name).unlink(missing_ok=True)
        tokenizer_files.take(Path(model.tokenizer_path), output)
    elif model.source == "builtin":
        if dataset is None:
            remedy = "set it, or pass the dataset section to train a tokenizer on"
            raise InputError("model.tokenizer_path", None, "is required for a built-in model", remedy)
        tokenizer_files.write_trained(texts(dataset, seed), model.vocab_size, output)
    tokenizer_files.check_fit(output, model.vocab_size)
    if model.source == "builtin":
        builtin.write_model(model, tokenizer_files.ending_ids(output), seed, output)


def texts(dataset: DatasetConfig, seed: int) -> Iterator[str]:
    """The training text of a dataset, question and answer by turns."""
    for prompt, answer in _pairs(dataset, seed):
        yield prompt + "\n"
        yield answer


def _pairs(dataset: DatasetConfig, seed: int) -> Iterator[tuple[str, str]]:
    if dataset.source == "local":
        for entry in read_lines(split_files(dataset)[0], dataset.columns):
            if isinstance(entry, Row):
                yield entry.prompt, entry.answer
        return
    if dataset.arith is None or dataset.train_rows is None:
        raise InputError("dataset.arith", None, "is required when dataset.source=builtin")
    yield from arith.generate(dataset.arith, seed, dataset.train_rows, 1)[0]
