"""The split stage: full tensors to rank_K directories, as strategy files say; and from layout to layout."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from stages.base.context import Context
from stages.base.errors import InputError
from stages.models.config import Dtype, ModelConfig
from stages.models.family import HF_NORM
from stages.weights.complete import stored_dtype
from stages.weights.config import SPLIT, Format, SplitConfig
from stages.weights.convert import converted
from stages.weights.names import is_fused, name_map, read_shape, renamed
from stages.weights.outputs import OutputFile, OutputFiles, Target, complete_directory
from stages.weights.prefixes import is_clone, plain_strategy
from stages.weights.progress import to_context
from stages.weights.slicing import Strategy, read_strategy, slice_of, slice_shape
from stages.weights.sources import Tensor, open_directory, open_ranks, whole
from stages.weights.transfer import Move, Progress, transfer

Box = tuple[slice, ...]


def run(context: Context) -> None:
    """Write {role}/rank_K/model.safetensors (or .ckpt) for the roles asked."""
    model, config = context.section(ModelConfig, "model"), context.section(SplitConfig, "split")
    SPLIT.demand(config)
    tensors, dtype = converted(context.inputs["convert"], context.inputs["fetch"], model)
    strategies = {
        context.output / role: read_strategy(context.inputs["strategy"] / f"{role}_strategy")
        for role in config.roles
    }
    split(tensors, strategies, None, dtype, config.format, progress=to_context(context, "split"))


def split(
    tensors: Mapping[str, Tensor],
    strategies: Mapping[Path, Strategy],
    ranks: Collection[int] | None,
    dtype: Dtype | None,
    file_format: Format = "safetensors",
    progress: Progress | None = None,
) -> None:
    """Cut full tensors for the ranks of one or more strategies; every source byte is read once.

    Args:
        tensors: parameter name -> full tensor (mindformers names).
        strategies: directory that gets rank_K/model.safetensors -> strategy.
        ranks: only these ranks (one node's share); None: all.
        dtype: cast floating tensors; None keeps them.
        file_format: safetensors (rank_K/model.safetensors) or ckpt (rank_K/model.ckpt).
        progress: told bytes.

    Raises:
        InputError: a tensor and the strategy don't fit each other, or the disk is full.
    """
    targets: dict[str, list[Target]] = {name: [] for name in tensors}
    with OutputFiles() as files:
        for root, strategy in strategies.items():
            plain = plain_strategy(strategy)
            _check(tensors, plain, root)
            for rank in _ranks(ranks, plain, root):
                boxes = rank_boxes(tensors, plain, rank)
                file = _create(files, root / f"rank_{rank}" / f"model.{file_format}", tensors, boxes, dtype)
                for name, box in boxes.items():
                    targets[name] += file.targets(name, box)
        files.check_space()
        moves = [
            Move(tensors[name], tuple(target), stored_dtype(tensors[name], dtype))
            for name, target in targets.items()
        ]
        transfer(moves, progress=progress)


def rank_boxes(tensors: Mapping[str, Tensor], strategy: Strategy, rank: int) -> dict[str, Box]:
    """Return which part of each tensor a rank holds; single values (counters) go to every rank."""
    boxes = {}
    for name, tensor in tensors.items():
        if name not in strategy.tensors:
            boxes[name] = tuple(slice(0, size) for size in tensor.shape)
        elif strategy.holds(name, rank):
            boxes[name] = slice_of(strategy.tensors[name], tensor.shape, rank, name)
    return boxes


def _create(
    files: OutputFiles,
    path: Path,
    tensors: Mapping[str, Tensor],
    boxes: Mapping[str, Box],
    dtype: Dtype | None,
) -> OutputFile:
    listed = [
        (name, stored_dtype(tensors[name], dtype), () if tensors[name].scalar else slice_shape(box))
        for name, box in boxes.items()
    ]
    return files.create(path, listed, {"format": "ms"})


def _ranks(ranks: Collection[int] | None, strategy: Strategy, root: Path) -> Sequence[int]:
    if ranks is None:
        return range(strategy.ranks)
    if not ranks or min(ranks) < 0 or max(ranks) >= strategy.ranks:
        raise InputError(
            root, sorted(ranks), f"ranks must lie in 0 to {strategy.ranks - 1}", "give ranks of this strategy"
        )
    return sorted(ranks)


def _check(tensors: Mapping[str, Tensor], strategy: Strategy, root: Path) -> None:
    """Both sides must list the same parameters; MindSpore copies or drops what differs, silently."""
    for name, tensor in tensors.items():
        if name not in strategy.tensors and tensor.shape != (1,):
            where = f"{tensor.pieces[0].stored.file}: {name}"
            rule = f"the strategy for {root.name} does not list this tensor"
            raise InputError(where, None, rule, "write the strategy of this model")
    if all(is_clone(name) or tensor.shape == (1,) for name, tensor in tensors.items()):
        return  # an optimizer's checkpoint, without the parameters themselves
    for name in strategy.tensors:
        if name not in tensors and not is_clone(name):
            rule = "the strategy lists this tensor, the weights lack it"
            raise InputError(root, name, rule, "write the strategy of this model")


def split_directory(
    source: Path,
    strategy: Path,
    out: Path,
    ranks: Collection[int] | None = None,
    dtype: Dtype | None = None,
    progress: Progress | None = None,
    file_format: Format = "safetensors",
) -> None:
    """`split` on paths alone; `out` appears when complete.

    Raises:
        InputError: naming file and tensor.
    """
    layouts = plain_strategy(read_strategy(strategy))
    tensors = open_complete(source, layouts)
    with complete_directory(out) as directory:
        split(tensors, {directory: layouts}, ranks, dtype, file_format, progress=progress)


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


def open_complete(source: Path, strategy: Strategy) -> dict[str, Tensor]:
    """Open a complete checkpoint under mindformers' names, fused if the strategy lists fused parameters."""
    stored = open_directory(source)
    if HF_NORM not in stored:
        return {name: whole(tensor) for name, tensor in stored.items()}
    directory = source if source.is_dir() else source.parent
    shape = read_shape(directory)
    return renamed(stored, name_map(shape, is_fused(strategy.tensors)), shape, directory)
