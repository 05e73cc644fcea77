"""`grpoflow convert`."""

from __future__ import annotations

from argparse import Namespace

from pipeline.cli import weights
from pipeline.cli.command import Commands
from pipeline.errors import Exit
from stages.convert import convert_directory


def register(commands: Commands) -> None:
    """Options of `convert`."""
    parser = commands.add(
        "convert",
        convert,
        "rename a Hugging Face checkpoint to mindformers' names",
        "SRC_HF_DIR OUT_DIR",
        tidies=True,
    )
    weights.add_paths(parser, "source", "out")
    parser.add_argument("--qkv-concat", action="store_true", help="fuse q, k, v and gate, up")
    weights.add_format(parser)
    weights.add_dtype(parser)


def convert(options: Namespace) -> int:
    """A Hugging Face directory under mindformers' names."""
    with weights.shown_bytes("convert") as told:
        convert_directory(
            options.source, options.out, options.qkv_concat, options.dtype, told, options.format
        )
    return Exit.DONE
