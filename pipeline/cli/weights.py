"""`grpoflow weights`: tools for checkpoints that need no store."""

import argparse
import contextlib
import functools
import importlib
import re
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from pipeline.cli.command import Commands
from pipeline.config.load import unchecked
from pipeline.errors import Exit, store_errors
from pipeline.terminal import console, say
from stages.base.files import shown_bytes
from stages.base.layout import ROLES
from stages.models.layouts import warnings
from stages.weights.index import unused_index
from stages.weights.strategy.stage import write_strategy

DTYPES = ("bfloat16", "float16", "float32")
RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
MOST_RANKS = 1 << 20
"""Upper limit for --ranks, so that a typo such as 0-9999999 does not fill the memory."""


@dataclass(frozen=True)
class Tool:
    """Tool that reads a checkpoint and writes another one."""

    help: str
    example: str
    module: str
    """Module with the function NAME_directory; imported only when needed, because it imports numpy."""
    paths: tuple[str, ...]
    """Positional arguments of the command line and of the function."""
    options: tuple[str, ...]
    """Other arguments of the function: names in OPTIONS."""


TOOLS = {
    "convert": Tool(
        "convert a Hugging Face checkpoint to mindformers' parameter names",
        "SRC_HF_DIR OUT_DIR",
        "stages.weights.convert",
        ("source", "out"),
        ("qkv_concat", "file_format", "dtype"),
    ),
    "split": Tool(
        "split a complete checkpoint into rank directories",
        "SRC_DIR STRATEGY OUT_DIR --ranks 0-7",
        "stages.weights.split",
        ("source", "strategy", "out"),
        ("ranks", "file_format", "dtype"),
    ),
    "merge": Tool(
        "merge rank directories into a complete checkpoint",
        "SRC_RANK_DIR STRATEGY OUT_DIR",
        "stages.weights.complete",
        ("source", "strategy", "out"),
        ("dtype",),
    ),
    "reshard": Tool(
        "convert rank directories from one layout to another",
        "SRC_RANK_DIR SRC DST OUT_DIR",
        "stages.weights.split",
        ("source", "source_strategy", "target_strategy", "out"),
        ("ranks", "file_format"),
    ),
    "export": Tool(
        "write a complete mindformers checkpoint as a Hugging Face directory",
        "SRC_DIR HF_REFERENCE OUT_DIR",
        "stages.weights.export",
        ("source", "reference", "out"),
        ("dtype",),
    ),
}


def register(commands: Commands) -> None:
    """Add `weights` and its tools."""
    tools = commands.group("weights", "convert, split, merge, reshard or export checkpoints without a store")
    help_text = "write MindSpore strategy files from the layout alone"
    example = "--out DIR --role train model=qwen2_5_7b layout=dp1_mp4_pp2"
    parser = tools.add("strategy", strategy, help_text, example)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--role", choices=ROLES, default="train")
    parser.add_argument("--names", choices=("mindformers", "mindrlhf"), default="mindformers")
    for name, tool in TOOLS.items():
        action = functools.partial(run_tool, name)
        parser = tools.add(name, action, tool.help, tool.example, overrides=False)
        for path in tool.paths:
            parser.add_argument(path, type=Path, metavar=path.upper())
        for option in tool.options:
            _add_option(parser, option)


def _add_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the option of a function's argument."""
    if name == "qkv_concat":
        parser.add_argument("--qkv-concat", action="store_true", help="fuse q, k, v and gate, up")
    elif name == "ranks":
        help_text = "only these ranks, for example those of one node"
        parser.add_argument("--ranks", metavar="0-7", type=parse_ranks, help=help_text)
    elif name == "file_format":
        formats = ("safetensors", "ckpt")
        parser.add_argument("--format", dest=name, choices=formats, default="safetensors")
    else:
        help_text = "cast tensors to this type (default: unchanged)"
        parser.add_argument("--dtype", choices=DTYPES, type=dtype, help=help_text)


def strategy(options: Namespace) -> int:
    """Write strategy files of one role."""
    config = unchecked(options.overrides, options.config_dir)
    model, layout, path = config.model, config.layout.role(options.role), f"layout.{options.role}"
    for warning in warnings(model, layout):
        say(f"warning: {path}: {warning}", stderr=True)
    role = options.role if options.names == "mindrlhf" else None
    with store_errors(options.out, "choose another directory"):
        write_strategy(model, layout, options.out, path, role)
    say(f"{options.out}: strategy files of {layout.cards} ranks, {layout.name}")
    return Exit.DONE


def run_tool(name: str, options: Namespace) -> int:
    """Run a tool, and print what it wrote."""
    tool = TOOLS[name]
    function = getattr(importlib.import_module(tool.module), f"{name}_directory")
    arguments = {key: getattr(options, key) for key in (*tool.paths, *tool.options)}
    if text := unused_index(arguments.get("reference", options.source)):
        say(f"warning: {text}", stderr=True)
    with store_errors(options.out, "choose another directory"), _progress(name) as progress:
        function(**arguments, progress=progress)
    files = [file for file in options.out.rglob("*") if file.is_file()]
    size = shown_bytes(sum(file.stat().st_size for file in files))
    say(f"{options.out}: {len(files)} files, {size}")
    return Exit.DONE


def parse_ranks(text: str) -> list[int]:
    """Parse ranks such as `0-7` or `0,2,5-7`; raise ArgumentTypeError for other texts."""
    ranks: list[int] = []
    for part in text.split(","):
        match = RANKS.fullmatch(part)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not numbers or len(ranks) + len(numbers) > MOST_RANKS:
            rule = f"must be ranks and ranges such as 0-7 or 0,2,5, of at most {MOST_RANKS:,} ranks"
            raise argparse.ArgumentTypeError(f"{text}: {rule}")
        ranks += numbers
    return ranks


def dtype(text: str) -> str:
    """Return the complete name of a dtype; bf16, fp16 and fp32 are understood too."""
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar in bytes if stderr is a terminal; yields the callback (done, total)."""
    columns = (TextColumn(name), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    out = console(stderr=True)
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
