"""Rank directories back to full tensors on disk."""

from pathlib import Path

from stages.models.config import Dtype
from stages.weights.complete import by_size, write_complete
from stages.weights.outputs import complete_directory
from stages.weights.slicing import read_strategy
from stages.weights.sources import open_ranks
from stages.weights.transfer import Progress


def merge_directory(
    source: Path, strategy: Path, out: Path, dtype: Dtype | None = None, progress: Progress | None = None
) -> None:
    """Merge rank_K directories into one complete mindformers checkpoint; `out` appears when complete.

    Args:
        source: directory with rank_0, rank_1, … as split or mindrlhf writes them (its prefixes are removed).
        strategy: their merged strategy file, or the directory of all ranks' files.
        out: new directory: numbered safetensors files and param_name_map.json.
        dtype: cast floating tensors; None keeps them.
        progress: told bytes.

    Raises:
        InputError: a rank, slice or stage is missing, or shapes don't fit.
    """
    tensors = open_ranks(source, read_strategy(strategy))
    with complete_directory(out) as directory:
        write_complete(tensors, by_size(tensors, dtype), directory, dtype, progress=progress)
