"""Stage tokenize: train, test and supervised examples as MindRecord files, with a data card."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from stages.context import Context
from stages.errors import ConfigError
from stages.fetch.config import DatasetConfig
from stages.model_config import ModelConfig
from stages.tokenize.config import TokenizeConfig, check_tokenize
from stages.tokenize.encode import Encoder
from stages.tokenize.stream import DROPPED, tokenize_file
from stages.tokenize.tokenizer import build, load, special_ids


def run(context: Context) -> None:
    """Stage entry."""
    config = context.section(TokenizeConfig, "tokenize")
    dataset = context.section(DatasetConfig, "dataset")
    encoder = make_encoder(context.inputs["fetch"], context.section(ModelConfig, "model"), dataset, config)
    source, output = context.inputs["fetch_dataset"], context.output

    def progress(done: int, total: int) -> None:
        context.progress(done, total, unit="rows")

    train = tokenize_file(
        encoder,
        source / "train.jsonl",
        output / "train.mindrecord",
        dataset.train_rows,
        sft=output / "sft.mindrecord",
        progress=progress,
    )
    test = tokenize_file(encoder, source / "test.jsonl", output / "test.mindrecord", dataset.test_rows)
    ids = encoder.ids
    card = {
        "files": {**train, **test},
        "tokenizer": {"size": encoder.tokenizer.get_vocab_size(), **dataclasses.asdict(ids)},
    }
    text = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
    (output / "result.json").write_text(text, encoding="utf-8")


def make_encoder(
    directory: Path, model: ModelConfig | None, dataset: DatasetConfig, config: TokenizeConfig
) -> Encoder:
    """The encoder for a directory with tokenizer files.

    Raises:
        ConfigError: the config contradicts itself.
        InputError: the tokenizer is missing or malformed.
    """
    problems = check_tokenize(config)
    if problems:
        raise ConfigError(problems)
    tokenizer = build(directory, drop_hash_merges=True) if config.compat == "mindrlhf" else load(directory)
    return Encoder(tokenizer, special_ids(directory, model), dataset, config)


def tokenize_path(
    encoder: Encoder, source: Path, output: Path, limit: int | None = None, sft: bool = False
) -> dict[str, Any]:
    """Write OUTPUT/NAME.mindrecord for SOURCE named NAME.jsonl; replaces an older one only when all is done.

    The files are written in a hidden directory beside the older ones under their final names (a
    MindRecord can't be renamed) and then moved.

    Returns:
        file name -> data card.
    """
    output.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".tokenize-", dir=output))
    try:
        examples = staging / f"{source.stem}_sft.mindrecord" if sft else None
        cards = tokenize_file(encoder, source, staging / f"{source.stem}.mindrecord", limit, sft=examples)
        (output / f"{source.stem}{DROPPED}").unlink(missing_ok=True)  # an older run's
        for file in sorted(staging.iterdir()):
            os.replace(file, output / file.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return cards
