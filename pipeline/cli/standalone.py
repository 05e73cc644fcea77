"""Single stages on plain paths: weights and data tools that need no store and no plan."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from pipeline.config.compose_cache import compose_cached
from pipeline.config.load import derive
from pipeline.errors import ConfigError, Problem
from stages.config import read
from stages.fetch.config import DatasetConfig
from stages.layout import RoleLayout
from stages.model_config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.tokenize.config import TokenizeConfig

T = TypeVar("T")
EXIT_DONE, EXIT_UNEARNABLE = 0, 1
RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
MOST_RANKS = 1 << 20
"""More than any layout has; a list of more would fill the memory before anybody looks at it."""


def strategy(options: Namespace) -> int:
    """Strategy files of one role, from the layout alone."""
    from stages.strategy.layouts import warnings
    from stages.strategy.stage import write_strategy

    values = _values(options)
    model = read(ModelConfig, values["model"], "model")
    path = f"layout.{options.role}"
    layout = read(RoleLayout, values["layout"][options.role], path)
    for warning in warnings(model, layout):
        print(f"warning: {path}: {warning}", file=sys.stderr)
    write_strategy(model, layout, options.out, path, options.role if options.names == "mindrlhf" else None)
    print(f"{options.out}: strategy files of {layout.cards} ranks, {layout.name}")
    return EXIT_DONE


def convert(options: Namespace) -> int:
    """A Hugging Face directory under mindformers' names."""
    from stages.convert import convert_directory

    with _bytes("convert") as told:
        convert_directory(
            options.source, options.out, options.qkv_concat, options.dtype, told, options.format
        )
    return EXIT_DONE


def split(options: Namespace) -> int:
    """A complete checkpoint cut into rank directories."""
    from stages.split import split_directory

    with _bytes("split") as told:
        split_directory(
            options.source,
            options.strategy,
            options.out,
            _ranks(options.ranks),
            options.dtype,
            told,
            options.format,
        )
    return EXIT_DONE


def merge(options: Namespace) -> int:
    """Rank directories put together."""
    from stages.merge import merge_directory

    with _bytes("merge") as told:
        merge_directory(options.source, options.strategy, options.out, options.dtype, told)
    return EXIT_DONE


def reshard(options: Namespace) -> int:
    """Rank directories of one layout as those of another."""
    from stages.reshard import reshard_directory

    with _bytes("reshard") as told:
        reshard_directory(
            options.source,
            options.source_strategy,
            options.target_strategy,
            options.out,
            _ranks(options.ranks),
            told,
            options.format,
        )
    return EXIT_DONE


def export(options: Namespace) -> int:
    """A complete mindformers checkpoint, or a run's model, as a Hugging Face directory."""
    from pipeline.cli.serving import export_run, split_overrides

    names, overrides = split_overrides(options.names)
    if len(names) < 3 and names:
        options.overrides = [*overrides, *options.overrides]
        return export_run(options, names[0], Path(names[1]) if len(names) == 2 else None)
    if len(names) != 3 or options.best:
        rule = "takes SRC_DIR HF_REFERENCE OUT_DIR, or RUN [OUT_DIR] [--best]"
        raise ConfigError([Problem("export", " ".join(names), rule, "see grpoflow export --help")])
    from stages.export import export_directory

    source, reference, out = map(Path, names)
    with _bytes("export") as told:
        export_directory(source, reference, out, options.dtype, told)
    return EXIT_DONE


def tokenize(options: Namespace) -> int:
    """One file of questions, instructions, conversations or text as MindRecord."""
    from stages.tokenize.stage import make_encoder, tokenize_path

    values = _values(options)
    dataset = read(DatasetConfig, values["dataset"], "dataset")
    config = read(TokenizeConfig, values["tokenize"], "tokenize")
    if options.sft and config.kind != "grpo":
        rule = f"is for questions with answers; tokenize.kind={config.kind} makes nothing else"
        raise ConfigError([Problem("--sft", None, rule, "leave it out")])
    encoder = make_encoder(options.tokenizer, None, dataset, config)
    cards = tokenize_path(encoder, options.input, options.out, sft=options.sft)
    print(json.dumps(cards, indent=1, default=asdict))
    return EXIT_DONE


def probe(options: Namespace) -> int:
    """Whether the configured reward can be earned with this prompt and dataset."""
    from pipeline.plan.reward_check import leftover
    from stages.model_config import ModelConfig
    from stages.rewards.probe import probe as look
    from stages.rewards.probe import sample_rows

    values = _values(options)
    dataset = read(DatasetConfig, values["dataset"], "dataset")
    config = read(TokenizeConfig, values["tokenize"], "tokenize")
    reward = read(RewardConfig, values["reward"], "reward")
    end = leftover(values["engine"], read(ModelConfig, values["model"], "model"))
    found = look(dataset, config, reward, sample_rows(dataset, config, 0), end)
    print(json.dumps(found.to_json(), indent=1))
    return EXIT_DONE if found.earnable else EXIT_UNEARNABLE


def _values(options: Namespace) -> dict[str, Any]:
    return derive(compose_cached(options.overrides, options.config_dir))


def _ranks(text: str | None) -> Sequence[int] | None:
    """`0-7`, `0,2,5` or both; None: all.

    Raises:
        ConfigError: anything else.
    """
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = RANKS.fullmatch(part)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers:
            remedy = "for example 0-7 or 0,2,5"
            raise ConfigError([Problem("--ranks", text, "must be numbers and ranges", remedy)])
        if len(found) + len(numbers) > MOST_RANKS:
            raise ConfigError(
                [Problem("--ranks", text, f"must be at most {MOST_RANKS:,} ranks", "name fewer")]
            )
        found += numbers
    return found


@contextlib.contextmanager
def _bytes(name: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar in bytes on a terminal, nothing elsewhere."""
    columns = (TextColumn(name), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
