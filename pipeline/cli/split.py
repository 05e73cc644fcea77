"""`grpoflow split`."""

from __future__ import annotations

from argparse import Namespace

from pipeline.cli import weights
from pipeline.cli.command import Commands
from pipeline.errors import Exit
from stages.split import split_directory


def register(commands: Commands) -> None:
    """Options of `split`."""
    parser = commands.add(
        "split",
        split,
        "cut a complete checkpoint into rank directories",
        "SRC_DIR STRATEGY OUT_DIR --ranks 0-7",
        tidies=True,
    )
    weights.add_paths(parser, "source", "strategy", "out")
    weights.add_ranks(parser)
    weights.add_format(parser)
    weights.add_dtype(parser)


def split(options: Namespace) -> int:
    """A complete checkpoint cut into rank directories."""
    with weights.shown_bytes("split") as told:
        split_directory(
            options.source,
            options.strategy,
            options.out,
            weights.ranks(options.ranks),
            options.dtype,
            told,
            options.format,
        )
    return Exit.DONE
