"""`grpoflow strategy`, `convert`, `split`, `merge` and `reshard`: tools on weights, without a store."""

import argparse
import contextlib
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipeline.cli.command import Commands, values_of
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.terminal import console
from stages.base.layout import ROLES, RoleLayout
from stages.base.reader import read
from stages.models.config import ModelConfig
from stages.models.layouts import warnings

DTYPES = ("bfloat16", "float16", "float32")  # bf16, fp16, fp32 are understood too
RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
MOST_RANKS = 1 << 20
"""More than any layout has; a list of more would fill the memory before anybody looks at it."""


def register(commands: Commands) -> None:
    """Add the tools on weights."""
    parser = commands.add(
        "strategy",
        strategy,
        "write MindSpore strategy files from the layout alone",
        "--out DIR --role train",
        tidies=True,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--role", choices=ROLES, default="train")
    parser.add_argument("--names", choices=("mindformers", "mindrlhf"), default="mindformers")

    rename = "rename a Hugging Face checkpoint to mindformers' names"
    parser = commands.add("convert", convert, rename, "SRC_HF_DIR OUT_DIR", tidies=True)
    _add_paths(parser, "source", "out")
    parser.add_argument("--qkv-concat", action="store_true", help="fuse q, k, v and gate, up")
    _add_format(parser)
    add_dtype(parser)

    cut = "cut a complete checkpoint into rank directories"
    parser = commands.add("split", split, cut, "SRC_DIR STRATEGY OUT_DIR --ranks 0-7", tidies=True)
    _add_paths(parser, "source", "strategy", "out")
    _add_ranks(parser)
    _add_format(parser)
    add_dtype(parser)

    parser = commands.add(
        "merge", merge, "put rank directories together", "SRC_RANK_DIR STRATEGY OUT_DIR", tidies=True
    )
    _add_paths(parser, "source", "strategy", "out")
    add_dtype(parser)

    turn = "turn rank directories of one layout into another's"
    parser = commands.add("reshard", reshard, turn, "SRC_RANK_DIR SRC DST OUT_DIR", tidies=True)
    _add_paths(parser, "source", "source_strategy", "target_strategy", "out")
    _add_ranks(parser)
    _add_format(parser)


def _add_paths(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(name, type=Path, metavar=name.upper())


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("safetensors", "ckpt"), default="safetensors")


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", metavar="0-7", help="only these ranks: one node's share")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Add what tensors are cast to."""
    parser.add_argument("--dtype", choices=DTYPES, type=_dtype, help="cast; default: keep")


def strategy(options: Namespace) -> int:
    """Write strategy files of one role."""
    from stages.weights.strategy.stage import write_strategy  # here and below: help need not load it

    values = values_of(options)
    model = read(ModelConfig, values["model"], "model")
    path = f"layout.{options.role}"
    layout = read(RoleLayout, values["layout"][options.role], path)
    for warning in warnings(model, layout):
        print(f"warning: {path}: {warning}", file=sys.stderr)
    write_strategy(model, layout, options.out, path, options.role if options.names == "mindrlhf" else None)
    print(f"{options.out}: strategy files of {layout.cards} ranks, {layout.name}")
    return Exit.DONE


def convert(options: Namespace) -> int:
    """Write a Hugging Face directory under mindformers' names."""
    from stages.weights.convert import convert_directory

    with shown_bytes("convert") as tell:
        convert_directory(
            options.source, options.out, options.qkv_concat, options.dtype, tell, options.format
        )
    return Exit.DONE


def split(options: Namespace) -> int:
    """Cut a complete checkpoint into rank directories."""
    from stages.weights.split import split_directory

    ranks = parse_ranks(options.ranks)
    with shown_bytes("split") as tell:
        split_directory(
            options.source, options.strategy, options.out, ranks, options.dtype, tell, options.format
        )
    return Exit.DONE


def merge(options: Namespace) -> int:
    """Put rank directories together."""
    from stages.weights.complete import merge_directory

    with shown_bytes("merge") as tell:
        merge_directory(options.source, options.strategy, options.out, options.dtype, tell)
    return Exit.DONE


def reshard(options: Namespace) -> int:
    """Turn rank directories of one layout into another's."""
    from stages.weights.split import reshard_directory

    strategies = (options.source_strategy, options.target_strategy)
    ranks = parse_ranks(options.ranks)
    with shown_bytes("reshard") as tell:
        reshard_directory(options.source, *strategies, options.out, ranks, tell, options.format)
    return Exit.DONE


def parse_ranks(text: str | None) -> Sequence[int] | None:
    """`0-7`, `0,2,5` or both; None: all.

    Raises:
        ConfigError: anything else.
    """
    if text is None:
        return None
    ranks: list[int] = []
    for part in text.split(","):
        match = RANKS.fullmatch(part)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers:
            remedy = "for example 0-7 or 0,2,5"
            raise ConfigError([Problem("--ranks", text, "must be numbers and ranges", remedy)])
        if len(ranks) + len(numbers) > MOST_RANKS:
            rule = f"must be at most {MOST_RANKS:,} ranks"
            raise ConfigError([Problem("--ranks", text, rule, "name fewer")])
        ranks += numbers
    return ranks


@contextlib.contextmanager
def shown_bytes(name: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar in bytes on a terminal, nothing elsewhere."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    out = console(stderr=True)
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _dtype(text: str) -> str:
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)
