"""Stage tokenize: train, test and supervised examples as MindRecord files, with a data card."""

import dataclasses
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stages.base.checks import demand
from stages.base.context import Context
from stages.base.errors import InputError
from stages.fetch.config import DatasetConfig
from stages.fetch.records import read_lines, split_sources
from stages.models.config import ModelConfig
from stages.tokenize.blocks import text_sources, tokenize_text
from stages.tokenize.chat import load_template
from stages.tokenize.config import BLOCKS, SftDataConfig, TokenizeConfig, problems
from stages.tokenize.counts import warnings
from stages.tokenize.encode import Encoder
from stages.tokenize.source import Rows, splits
from stages.tokenize.stream import tokenize_file
from stages.tokenize.supervised import check_ending, tokenize_conversations
from stages.tokenize.tally import DROPPED
from stages.tokenizer import build, load, special_ids, special_tokens


def run(context: Context) -> None:
    """Write train, sft and test MindRecords, their rows left out, and result.json with the data cards."""
    encoder, examples = encoder_for(context), "sft_data" in context.config
    if encoder.config.kind != "grpo":
        _only_supervised(context, encoder, context.output / "sft.mindrecord")
        return
    train, test = splits(context.inputs["fetch_dataset"], encoder.dataset, encoder.columns)

    questions: set[int] = set()
    sft, progress = context.output / "sft.mindrecord", partial(context.progress, unit="rows")
    target = context.output / "train.mindrecord"
    files = tokenize_file(encoder, train, target, None if examples else sft, progress, questions)
    if examples:
        files |= tokenize_user_examples(context, sft)
    files |= tokenize_file(encoder, test, context.output / "test.mindrecord", training=questions)
    for warning in warnings(files):
        context.warn(warning)
    size = {"size": encoder.tokenizer.get_vocab_size(), **dataclasses.asdict(encoder.ids)}
    context.write_result({"files": files, "tokenizer": size})


def _only_supervised(context: Context, encoder: Encoder, target: Path) -> None:
    """Write the supervised examples of a dataset without questions (engine=supervised), and result.json."""
    sources = split_sources(context.inputs["fetch_dataset"], "train", any_suffix=True)
    if encoder.config.kind not in BLOCKS:
        check_ending(encoder)
    files = write_supervised(encoder, sources, target)
    for warning in warnings(files):
        context.warn(warning)
    size = {"size": encoder.tokenizer.get_vocab_size(), **dataclasses.asdict(encoder.ids)}
    context.write_result({"files": files, "tokenizer": size})


def write_supervised(encoder: Encoder, sources: Sequence[Path], target: Path) -> dict[str, Any]:
    """Write examples of any kind but grpo into a MindRecord; return file stem -> data card."""
    if encoder.config.kind in BLOCKS:
        return tokenize_text(encoder, sources, target)
    return tokenize_conversations(encoder, sources, target)


def tokenize_user_examples(context: Context, target: Path) -> dict[str, Any]:
    """Write the user's supervised examples (section sft_data) as a MindRecord; return the data card."""
    examples = context.section(SftDataConfig, "sft_data")
    if examples.path is None:
        return {}
    encoder = encoder_for(context, kind=examples.kind, compat="none", chat_template=True)
    check_ending(encoder)
    return tokenize_conversations(encoder, [Path(examples.path)], target)


def encoder_for(context: Context, **changes: Any) -> Encoder:
    """Create the encoder of a stage, like make_encoder; `changes` replace values of section tokenize."""
    config = dataclasses.replace(context.section(TokenizeConfig, "tokenize"), **changes)
    model, dataset = context.section(ModelConfig, "model"), context.section(DatasetConfig, "dataset")
    return make_encoder(context.inputs["fetch"], model, dataset, config)


def make_encoder(
    directory: Path, model: ModelConfig | None, dataset: DatasetConfig, config: TokenizeConfig
) -> Encoder:
    """Create the encoder for a directory with tokenizer files.

    Raises:
        ConfigError: the config contradicts itself.
        InputError: the tokenizer is missing or malformed.
    """
    demand(problems(config))
    tokenizer = load(directory) if config.compat == "none" else build(directory, drop_hash_merges=True)
    template = None
    if config.chat_template:
        template = load_template(directory, special_tokens(tokenizer), config.enable_thinking)
    return Encoder(tokenizer, special_ids(directory, model), dataset, config, template)


def tokenize_path(encoder: Encoder, source: Path, output: Path, sft: bool = False) -> dict[str, Any]:
    """Write OUTPUT/NAME.mindrecord for SOURCE named NAME.*, and return the data card of each file.

    The files are written in a hidden directory inside OUTPUT under their final names (a MindRecord can't be
    renamed) and then moved. With `sft`, NAME_sft.mindrecord gets the supervised examples of kind=grpo.

    Raise InputError if OUTPUT already has such files, the source can't be read, has too many bad rows, or no
    row is left.
    """
    output.mkdir(parents=True, exist_ok=True)
    for stem in [source.stem, *([f"{source.stem}_sft"] if sft else [])]:
        for suffix in (".mindrecord", ".mindrecord.db", DROPPED):
            if (output / f"{stem}{suffix}").exists():
                rule, remedy = "exists already", "remove it, or choose another directory"
                raise InputError(output / f"{stem}{suffix}", None, rule, remedy)
    with tempfile.TemporaryDirectory(prefix=".tokenize-", dir=output) as directory:
        target = Path(directory) / f"{source.stem}.mindrecord"
        if encoder.config.kind == "grpo":
            dataset = encoder.dataset
            limit = None if dataset.source == "builtin" else dataset.train_rows  # its rows are to generate
            rows = Rows([source], partial(read_lines, columns=encoder.columns), limit)
            examples = target.with_name(f"{source.stem}_sft.mindrecord") if sft else None
            cards = tokenize_file(encoder, rows, target, examples)
        else:
            cards = write_supervised(encoder, text_sources(source), target)
        for file in sorted(target.parent.iterdir()):
            file.replace(output / file.name)
    return cards
