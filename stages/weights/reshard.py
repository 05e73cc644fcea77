"""Rank directories of one layout directly to those of another, optimizer states included."""

from collections.abc import Collection
from pathlib import Path

from stages.weights.formats import Format
from stages.weights.outputs import complete_directory
from stages.weights.slicing import read_strategy
from stages.weights.sources import open_ranks
from stages.weights.split import split
from stages.weights.transfer import Progress


def reshard_directory(
    source: Path,
    source_strategy: Path,
    target_strategy: Path,
    out: Path,
    ranks: Collection[int] | None = None,
    progress: Progress | None = None,
    file_format: Format = "safetensors",
) -> None:
    """Reshard rank_K directories; no full copy is written in between. `out` appears when complete.

    Args:
        source: directory with rank_0, rank_1, …
        source_strategy: strategy file or directory of `source`.
        target_strategy: strategy file or directory of the result.
        out: new directory with rank_K/model.safetensors.
        ranks: only these ranks of the result; None: all.
        progress: told bytes.
        file_format: safetensors or ckpt.

    Raises:
        InputError: a slice is missing, or tensors and strategies don't fit each other.
    """
    tensors = open_ranks(source, read_strategy(source_strategy))
    with complete_directory(out) as directory:
        split(
            tensors, {directory: read_strategy(target_strategy)}, ranks, None, file_format, progress=progress
        )
