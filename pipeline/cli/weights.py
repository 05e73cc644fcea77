"""`grpoflow weights`: tools for checkpoints that need no store."""

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
from stages.base.files import shown_bytes
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
    """Add `weights` and its tools."""
    tools = commands.group("weights", "convert, split, merge, reshard or export checkpoints without a store")
    parser = tools.add(
        "strategy",
        strategy,
        "write MindSpore strategy files from the layout alone",
        "--out DIR --role train model=qwen2_5_7b layout=dp1_mp4_pp2",
        tidies=True,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--role", choices=ROLES, default="train")
    parser.add_argument("--names", choices=("mindformers", "mindrlhf"), default="mindformers")

    help_text = "convert a Hugging Face checkpoint to mindformers' parameter names"
    parser = tools.add("convert", convert, help_text, "SRC_HF_DIR OUT_DIR", tidies=True)
    _add_paths(parser, "source", "out")
    parser.add_argument("--qkv-concat", action="store_true", help="fuse q, k, v and gate, up")
    _add_format(parser)
    _add_dtype(parser)

    help_text = "split a complete checkpoint into rank directories"
    parser = tools.add("split", split, help_text, "SRC_DIR STRATEGY OUT_DIR --ranks 0-7", tidies=True)
    _add_paths(parser, "source", "strategy", "out")
    _add_ranks(parser)
    _add_format(parser)
    _add_dtype(parser)

    help_text = "merge rank directories into a complete checkpoint"
    parser = tools.add("merge", merge, help_text, "SRC_RANK_DIR STRATEGY OUT_DIR", tidies=True)
    _add_paths(parser, "source", "strategy", "out")
    _add_dtype(parser)

    help_text = "convert rank directories from one layout to another"
    parser = tools.add("reshard", reshard, help_text, "SRC_RANK_DIR SRC DST OUT_DIR", tidies=True)
    _add_paths(parser, "source", "source_strategy", "target_strategy", "out")
    _add_ranks(parser)
    _add_format(parser)

    help_text = "write a complete mindformers checkpoint as a Hugging Face directory"
    parser = tools.add("export", export, help_text, "SRC_DIR HF_REFERENCE OUT_DIR", tidies=True)
    _add_paths(parser, "source", "reference", "out")
    _add_dtype(parser)


def _add_paths(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(name, type=Path, metavar=name.upper())


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("safetensors", "ckpt"), default="safetensors")


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", metavar="0-7", help="only these ranks, for example those of one node")


def _add_dtype(parser: argparse.ArgumentParser) -> None:
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

    _warn_unused_index(options.source)
    with _progress("convert") as on_progress:
        convert_directory(
            options.source, options.out, options.qkv_concat, options.dtype, on_progress, options.format
        )
    return _report(options.out)


def split(options: Namespace) -> int:
    """Split a complete checkpoint into rank directories."""
    from stages.weights.split import split_directory

    _warn_unused_index(options.source)
    ranks = parse_ranks(options.ranks)
    with _progress("split") as on_progress:
        split_directory(
            options.source, options.strategy, options.out, ranks, options.dtype, on_progress, options.format
        )
    return _report(options.out)


def merge(options: Namespace) -> int:
    """Merge rank directories into a complete checkpoint."""
    from stages.weights.complete import merge_directory

    with _progress("merge") as on_progress:
        merge_directory(options.source, options.strategy, options.out, options.dtype, on_progress)
    return _report(options.out)


def reshard(options: Namespace) -> int:
    """Convert rank directories from one layout to another."""
    from stages.weights.split import reshard_directory

    strategies = (options.source_strategy, options.target_strategy)
    ranks = parse_ranks(options.ranks)
    with _progress("reshard") as on_progress:
        reshard_directory(options.source, *strategies, options.out, ranks, on_progress, options.format)
    return _report(options.out)


def export(options: Namespace) -> int:
    """Write a complete mindformers checkpoint as a Hugging Face directory."""
    from stages.weights.export import export_directory

    _warn_unused_index(options.reference)
    with _progress("export") as on_progress:
        export_directory(options.source, options.reference, options.out, options.dtype, on_progress)
    return _report(options.out)


def _warn_unused_index(directory: Path) -> None:
    if text := unused_index(directory):
        print(f"warning: {text}", file=sys.stderr)


def _report(out: Path) -> int:
    """Print what a tool wrote."""
    files = [file for file in out.rglob("*") if file.is_file()]
    print(f"{out}: {len(files)} files, {shown_bytes(sum(file.stat().st_size for file in files))}")
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
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar in bytes if stderr is a terminal; yields the callback (done, total)."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    out = console(stderr=True)
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _dtype(text: str) -> str:
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)
