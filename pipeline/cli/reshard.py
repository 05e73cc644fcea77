"""`grpoflow reshard`."""

from __future__ import annotations

from argparse import Namespace

from pipeline.cli import weights
from pipeline.cli.command import Commands
from pipeline.errors import Exit
from stages.reshard import reshard_directory


def register(commands: Commands) -> None:
    """Options of `reshard`."""
    parser = commands.add(
        "reshard",
        reshard,
        "turn rank directories of one layout into another's",
        "SRC_RANK_DIR SRC DST OUT_DIR",
        tidies=True,
    )
    weights.add_paths(parser, "source", "source_strategy", "target_strategy", "out")
    weights.add_ranks(parser)
    weights.add_format(parser)


def reshard(options: Namespace) -> int:
    """Rank directories of one layout as those of another."""
    with weights.shown_bytes("reshard") as told:
        reshard_directory(
            options.source,
            options.source_strategy,
            options.target_strategy,
            options.out,
            weights.ranks(options.ranks),
            told,
            options.format,
        )
    return Exit.DONE
