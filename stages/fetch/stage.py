"""Stage fetch: a Hugging Face directory with a model and its tokenizer."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from stages.base.context import Context
from stages.base.errors import InputError
from stages.fetch import arith, builtin, hub, local, tokenizer_files
from stages.fetch.config import DatasetConfig
from stages.fetch.download import Progress, adopt, link
from stages.fetch.jsonl import Row, read_lines
from stages.fetch.listing import Listed, model_files
from stages.fetch.sources import FetchConfig
from stages.fetch.user_files import split_files
from stages.models.config import ModelConfig
from stages.weights.progress import to_context


def run(context: Context) -> None:
    """Put config, weights and tokenizer into the output."""
    model = context.section(ModelConfig, "model")
    if model.source == "builtin":
        dataset = context.section(DatasetConfig, "dataset") if context.config.get("dataset") else None
        rows = context.inputs.get("fetch_dataset")
        text = texts(dataset, context.seed, rows) if dataset else None
        build_model(model, text, context.seed, context.output)
        return
    fetch = context.section(FetchConfig, "fetch")
    fetch_model(model, fetch, context.output, context.work, to_context(context, model.hub_id or model.name))


def build_model(model: ModelConfig, text: Iterator[str] | None, seed: int, output: Path) -> None:
    """Write a model with random weights, and its tokenizer: the configured one or one trained on `text`.

    Raises:
        InputError: there is neither a tokenizer nor text, or the vocabulary does not fit.
    """
    if model.tokenizer_path is not None:
        tokenizer_files.take(Path(model.tokenizer_path), output)
    elif text is None:
        remedy = "set it, or pass the dataset section to train a tokenizer on"
        raise InputError("model.tokenizer_path", None, "is required for a built-in model", remedy)
    else:
        tokenizer_files.write_trained(text, model.vocab_size, output)
    tokenizer_files.check_fit(output, model.vocab_size)
    builtin.write_model(model, tokenizer_files.ending_ids(output), seed, output)


def fetch_model(
    model: ModelConfig,
    fetch: FetchConfig,
    output: Path,
    work: Path,
    progress: Progress = lambda done, total: None,
) -> None:
    """Put a local model, or one from ModelScope, with its tokenizer into `output`.

    A download adds result.json with its origin, sizes and digests.

    Args:
        model: source, and the expected shape.
        fetch: download settings.
        output: an existing, empty directory.
        work: scratch directory that survives a kill.
        progress: called with (bytes here, total bytes) of a download.

    Raises:
        InputError: a file is missing or malformed, the vocabulary does not fit, or the hub refuses,
            delivers other bytes than it lists, or stays unreachable.
        ConfigError: config.json disagrees with the model section.
    """
    own_tokenizer = model.tokenizer_path is None
    if model.source == "local":
        local.put_model(Path(model.path or ""), model, output, link, own_tokenizer)
    else:
        assert model.hub is not None

        def select(listed: Sequence[Listed], origin: str) -> list[Listed]:
            return model_files(listed, origin, own_tokenizer)

        got = hub.download("model", model.hub_id, model.hub.revision, select, fetch, work, progress)
        local.put_model(got.root, model, output, adopt, own_tokenizer)
        text = json.dumps(got.record(), indent=1) + "\n"
        (output / "result.json").write_text(text, encoding="utf-8")
    if model.tokenizer_path is None:
        tokenizer_files.complete(output)
    else:
        tokenizer_files.take(Path(model.tokenizer_path), output)
    tokenizer_files.check_fit(output, model.vocab_size)


def texts(dataset: DatasetConfig, seed: int, fetched: Path | None = None) -> Iterator[str]:
    """Yield the training text of a dataset, questions and answers in turn.

    Args:
        dataset: generated, local, or fetched.
        seed: for generated rows.
        fetched: artifact of fetch_dataset, if there is one.
    """
    if dataset.source == "builtin":
        if dataset.arith is None or dataset.train_rows is None:
            raise InputError("dataset.arith", None, "is required when dataset.source=builtin")
        for prompt, answer in arith.generate(dataset.arith, seed, dataset.train_rows, 1)[0]:
            yield from (prompt + "\n", answer)
        return
    for file in [split_files(dataset)[0]] if fetched is None else sorted(fetched.glob("train*")):
        for row in read_lines(file, dataset.columns):
            if isinstance(row, Row):
                yield from (row.prompt + "\n", row.answer)
