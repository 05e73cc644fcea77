"""`grpoflow strategy`, `convert`, `split`, `merge` and `reshard`: weight tools that need no store."""

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
from stages.weights.index import unused_index

DTYPES = ("bfloat16", "float16", "float32")  # bf16, fp16, fp32 are understood too
RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
MOST_RANKS = 1 << 20
"""Upper limit for --ranks, so that a typo such as 0-9999999 does not fill the memory."""


def register(commands: Commands) -> None:
    """Add the weight tools."""
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

    help_text = "convert a Hugging Face checkpoint to mindformers' parameter names"
    parser = commands.add("convert", convert, help_text, "SRC_HF_DIR OUT_DIR", tidies=True)
    _add_paths(parser, "source", "out")
    parser.add_argument("--qkv-concat", action="store_true", help="fuse q, k, v and gate, up")
    _add_format(parser)
    add_dtype(parser)

    help_text = "split a complete checkpoint into rank directories"
    parser = commands.add("split", split, help_text, "SRC_DIR STRATEGY OUT_DIR --ranks 0-7", tidies=True)
    _add_paths(parser, "source", "strategy", "out")
    _add_ranks(parser)
    _add_format(parser)
    add_dtype(parser)

    parser = commands.add(
        "merge",
        merge,
        "merge rank directories into a complete checkpoint",
        "SRC_RANK_DIR STRATEGY OUT_DIR",
        tidies=True,
    )
    _add_paths(parser, "source", "strategy", "out")
    add_dtype(parser)

    help_text = "convert rank directories from one layout to another"
    parser = commands.add("reshard", reshard, help_text, "SRC_RANK_DIR SRC DST OUT_DIR", tidies=True)
    _add_paths(parser, "source", "source_strategy", "target_strategy", "out")
    _add_ranks(parser)
    _add_format(parser)


def _add_paths(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(name, type=Path, metavar=name.upper())


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("safetensors", "ckpt"), default="safetensors")


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", metavar="0-7", help="only these ranks, for example those of one node")


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Add --dtype."""
    parser.add_argument(
        "--dtype", choices=DTYPES, type=_dtype, help="cast tensors to this type (default: unchanged)"
    )


def strategy(options: Namespace) -> int:
    """Write strategy files of one role."""
    from stages.weights.strategy.stage import write_strategy  # imports numpy, which --help does not need

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
    """Convert a Hugging Face directory to mindformers' parameter names."""
    from stages.weights.convert import convert_directory

    warn_unused_index(options.source)
    with byte_progress("convert") as on_progress:
        convert_directory(
            options.source, options.out, options.qkv_concat, options.dtype, on_progress, options.format
        )
    return Exit.DONE


def warn_unused_index(directory: Path) -> None:
    """Warn if a Hugging Face directory has an index of weights that are not read."""
    if text := unused_index(directory):
        print(f"warning: {text}", file=sys.stderr)


def split(options: Namespace) -> int:
    """Split a complete checkpoint into rank directories."""
    from stages.weights.split import split_directory

    warn_unused_index(options.source)
    ranks = parse_ranks(options.ranks)
    with byte_progress("split") as on_progress:
        split_directory(
            options.source, options.strategy, options.out, ranks, options.dtype, on_progress, options.format
        )
    return Exit.DONE


def merge(options: Namespace) -> int:
    """Merge rank directories into a complete checkpoint."""
    from stages.weights.complete import merge_directory

    with byte_progress("merge") as on_progress:
        merge_directory(options.source, options.strategy, options.out, options.dtype, on_progress)
    return Exit.DONE


def reshard(options: Namespace) -> int:
    """Convert rank directories from one layout to another."""
    from stages.weights.split import reshard_directory

    strategies = (options.source_strategy, options.target_strategy)
    ranks = parse_ranks(options.ranks)
    with byte_progress("reshard") as on_progress:
        reshard_directory(options.source, *strategies, options.out, ranks, on_progress, options.format)
    return Exit.DONE


def parse_ranks(text: str | None) -> Sequence[int] | None:
    """Parse ranks such as `0-7` or `0,2,5-7`; None means all ranks.

    Raises:
        ConfigError: the text has another form or lists too many ranks.
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
def byte_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar in bytes if stderr is a terminal; yields the callback (done, total)."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    out = console(stderr=True)
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _dtype(text: str) -> str:
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)
