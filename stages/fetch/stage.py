"""Stage fetch: a Hugging Face directory with a model and its tokenizer."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stages.base.context import Context, Progress
from stages.base.errors import InputError
from stages.base.files import read_object
from stages.fetch import builtin, hub, local, tokenizer_files
from stages.fetch.config import DatasetConfig
from stages.fetch.download import Downloaded, adopt
from stages.fetch.listing import CONFIG, matching, model_files
from stages.fetch.sources import FetchConfig
from stages.fetch.training import training_rows
from stages.models.config import ModelConfig


def run(context: Context) -> None:
    """Put config, weights and tokenizer into the output."""
    model = context.section(ModelConfig, "model")
    if model.source == "builtin":
        text = None
        if context.config.get("dataset"):
            dataset = context.section(DatasetConfig, "dataset")
            fetched = context.inputs.get("fetch_dataset")
            rows = training_rows(dataset, dataset.columns, context.seed, fetched)
            text = (part for row in rows for part in (row.prompt + "\n", row.answer))
        build_model(model, text, context.seed, context.output)
        return
    fetch = context.section(FetchConfig, "fetch")
    fetch_model(
        model, fetch, context.output, context.work, context.progress_in_bytes(model.hub_id or model.name)
    )


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

    A download adds result.json with its origin, sizes and digests; `work` must survive a kill.

    Raises:
        InputError: a file is missing or malformed, the vocabulary does not fit, or the hub refuses,
            delivers other bytes than it lists, or stays unreachable.
        ConfigError: config.json disagrees with the model section.
    """
    with_tokenizer = model.tokenizer_path is None
    if model.source == "local":
        local.link_model(Path(model.path or ""), model, output, with_tokenizer)
    else:
        got = _download(model, fetch, work, progress, with_tokenizer)
        for file in got.files:  # the directory may also hold files that the repository has no more
            adopt(got.root / file.path, output / file.path, work)
        local.check_model(output, model)
        (output / "result.json").write_text(json.dumps(got.record(), indent=1) + "\n", encoding="utf-8")
    if model.tokenizer_path is None:
        tokenizer_files.complete(output)
    else:
        tokenizer_files.take(Path(model.tokenizer_path), output)
    tokenizer_files.check_fit(output, model.vocab_size)


def _download(
    model: ModelConfig, fetch: FetchConfig, work: Path, progress: Progress, with_tokenizer: bool
) -> Downloaded:
    """Download a model; check its config.json before the weights are downloaded."""
    assert model.hub is not None
    repository, revision = model.hub_id, model.hub.revision
    select = partial(matching, pattern=CONFIG, remedy="choose a Hugging Face repository")
    config = hub.download("model", repository, revision, select, fetch, work).root / CONFIG
    local.check_config(read_object(config), model, config)
    needed = partial(model_files, with_tokenizer=with_tokenizer)
    return hub.download("model", repository, revision, needed, fetch, work, progress)
