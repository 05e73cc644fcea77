"""`grpoflow merge`."""

from __future__ import annotations

from argparse import Namespace

from pipeline.cli import weights
from pipeline.cli.command import Commands
from pipeline.errors import Exit
from stages.merge import merge_directory


def register(commands: Commands) -> None:
    """Options of `merge`."""
    parser = commands.add(
        "merge", merge, "put rank directories together", "SRC_RANK_DIR STRATEGY OUT_DIR", tidies=True
    )
    weights.add_paths(parser, "source", "strategy", "out")
    weights.add_dtype(parser)


def merge(options: Namespace) -> int:
    """Rank directories put together."""
    with weights.shown_bytes("merge") as told:
        merge_directory(options.source, options.strategy, options.out, options.dtype, told)
    return Exit.DONE
