"""The split stage: full tensors to rank_K directories by their strategy files; also from layout to layout."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from stages.base.checks import demand
from stages.base.context import Context, Progress
from stages.base.errors import InputError
from stages.models.config import Dtype, ModelConfig
from stages.models.family import HF_NORM
from stages.models.tensor_layout import Box
from stages.weights.complete import write_files
from stages.weights.config import Format, SplitConfig, split_problems
from stages.weights.convert import converted
from stages.weights.names import is_fused, read_shape, renamed
from stages.weights.outputs import complete_directory
from stages.weights.sources import Tensor, as_tensor, open_directory, open_ranks
from stages.weights.strategy.files import Strategy, read_strategy


def run(context: Context) -> None:
    """Write {role}/rank_K/model.safetensors (or .ckpt) for the configured roles."""
    model, config = context.section(ModelConfig, "model"), context.section(SplitConfig, "split")
    demand(split_problems(config))
    tensors, dtype = converted(context.inputs["convert"], context.inputs["fetch"], model)
    strategies = {
        context.output / role: read_strategy(context.inputs["strategy"] / f"{role}_strategy")
        for role in config.chosen_roles
    }
    split(tensors, strategies, None, dtype, config.format, progress=context.progress_in_bytes("split"))


def split(
    tensors: Mapping[str, Tensor], strategies: Mapping[Path, Strategy], ranks: Collection[int] | None,
    dtype: Dtype | None, file_format: Format = "safetensors", progress: Progress | None = None,
) -> None:  # fmt: skip
    """Cut full tensors for the ranks of one or more strategies; every source byte is read once.

    Args:
        tensors: mindformers' parameter name -> full tensor.
        strategies: directory that gets rank_K/model.{file_format} -> strategy.
        ranks: only these ranks (one node's share); None: all.
        dtype: cast floating tensors; None keeps them.
        file_format: safetensors or ckpt.
        progress: called with bytes.

    Raises:
        InputError: a tensor and the strategy don't fit each other, or the disk is full.
    """
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    files: dict[Path, Mapping[str, Box]] = {}
    for root, strategy in strategies.items():
        strategy.check_names(shapes)
        for rank in _ranks(ranks, strategy, root):
            files[root / f"rank_{rank}" / f"model.{file_format}"] = strategy.boxes(shapes, rank)
    write_files(tensors, files, dtype, progress)


def _ranks(ranks: Collection[int] | None, strategy: Strategy, root: Path) -> Sequence[int]:
    if ranks is None:
        return range(strategy.ranks)
    if not ranks or min(ranks) < 0 or max(ranks) >= strategy.ranks:
        rule = f"ranks must be from 0 to {strategy.ranks - 1}"
        raise InputError(root, sorted(ranks), rule, "give ranks of this strategy")
    return sorted(ranks)


def split_directory(
    source: Path, strategy: Path, out: Path, ranks: Collection[int] | None = None,
    dtype: Dtype | None = None, progress: Progress | None = None, file_format: Format = "safetensors",
) -> None:  # fmt: skip
    """Split a checkpoint under mindformers' or Hugging Face's names; `out` appears when complete.

    Raises:
        InputError: naming file and tensor.
    """
    layouts, stored = read_strategy(strategy), open_directory(source)
    if HF_NORM in stored:
        directory = source if source.is_dir() else source.parent
        tensors = renamed(stored, read_shape(directory), directory, is_fused(layouts.tensors))
    else:
        tensors = {name: as_tensor(tensor) for name, tensor in stored.items()}
    with complete_directory(out) as directory:
        split(tensors, {directory: layouts}, ranks, dtype, file_format, progress=progress)


def reshard_directory(
    source: Path, source_strategy: Path, target_strategy: Path, out: Path,
    ranks: Collection[int] | None = None, progress: Progress | None = None,
    file_format: Format = "safetensors",
) -> None:  # fmt: skip
    """Reshard rank_K directories; no full copy is written in between. `out` appears when complete.

    `ranks`: only these ranks of the result; None: all.

    Raises:
        InputError: a slice is missing, or tensors and strategies don't fit each other.
    """
    tensors, target = open_ranks(source, read_strategy(source_strategy)), read_strategy(target_strategy)
    with complete_directory(out) as directory:
        split(tensors, {directory: target}, ranks, None, file_format, progress=progress)
