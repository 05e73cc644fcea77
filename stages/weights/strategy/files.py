"""Reading and writing strategy files, and what they say as plain values.

Source: mindspore 2.7.0, python/mindspore/parallel/_parallel_serialization.py (readers) and
ccsrc/frontend/parallel/strategy_checkpoint/parallel_strategy_checkpoint.cc (writer).
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from stages.base.errors import InputError
from stages.base.files import read_bytes
from stages.models.tensor_layout import TensorLayout
from stages.weights.strategy.messages import EncodedStrategyMap, ParallelLayoutItem, ParallelStrategyMap

MERGED_NAME = "merged_ckpt_strategy.ckpt"
"""mindformers' name of a merged file."""
MERGED_DIRECTORY = "merge_strategy"
"""Directory of mindrlhf's merged files, one per role: *_merged_strategy.ckpt."""
_RANK_FILE = re.compile(r"(?:ckpt_strategy_rank|strategy)_(\d+)\.ckpt")
_STAGE_PREFIX = re.compile(r"(\d+)-(.+)", re.DOTALL)


@dataclass(frozen=True)
class Strategy:
    """All parameters' layouts of one run."""

    tensors: Mapping[str, TensorLayout]
    """Parameter name -> layout; includes optimizer clones (adam_m., adam_v.) where the files list them."""
    stages: int
    """Pipeline stages."""
    cards_per_stage: int

    @property
    def ranks(self) -> int:
        """World size."""
        return self.stages * self.cards_per_stage

    def holds(self, name: str, rank: int) -> bool:
        """Return True if `rank` has a slice of `name`."""
        return rank // self.cards_per_stage in self.tensors[name].stages


def encode(tensors: Mapping[str, TensorLayout], stage: int) -> bytes:
    """One stage's file (the ranks of a stage share it). Field values as MindSpore writes them."""
    message = EncodedStrategyMap(current_stage=1)
    _add_stage(message, tensors, stage, prefix="")
    return bytes(message.SerializeToString())


def encode_merged(stages: Iterable[Mapping[str, TensorLayout]]) -> bytes:
    """Return the bytes that merge_pipeline_strategys writes for all stages: names prefixed with "STAGE-"."""
    message = EncodedStrategyMap(current_stage=1)
    for stage, tensors in enumerate(stages):
        _add_stage(message, tensors, stage, prefix=f"{stage}-")
    return bytes(message.SerializeToString())


def _add_stage(message: Any, tensors: Mapping[str, TensorLayout], stage: int, prefix: str) -> None:
    # MindSpore's readers take the stage from the first strategy item and refuse a file without one;
    # nothing else of the operators' strategies is ever read.
    item = message.parallel_strategy_item.add(node_name=f"stage_{stage}")
    item.parallel_strategys.stage = stage
    for name, layout in tensors.items():
        # Joined encodings of two parts of a message are the encoding of the whole. A model has
        # thousands of parameters but a handful of layouts, and encoding those is the slow part.
        encoded = ParallelLayoutItem(param_name=prefix + name).SerializePartialToString()
        message.parallel_layout_item.append(encoded + _encoded_layout(layout))


@functools.cache
def _encoded_layout(layout: TensorLayout) -> bytes:
    item = ParallelLayoutItem()
    layouts = item.parallel_layouts
    layouts.dev_matrix.add(dim=layout.dev_matrix)
    layouts.tensor_map.add(dim=layout.tensor_map)
    layouts.param_split_shape.add()
    layouts.indices_offset.add()
    layouts.field = 0
    layouts.opt_weight_shard_step = layout.opt_weight_shard_step
    layouts.opt_weight_shard_size = layout.opt_weight_shard_size
    return bytes(item.SerializePartialToString())


def read_strategy(path: Path) -> Strategy:
    """Read a merged strategy file, a rank's file (one pipeline stage only), or a directory of either.

    Args:
        path: a .ckpt file, or a directory with merged_ckpt_strategy.ckpt or ckpt_strategy_rank_R.ckpt
            (mindformers), merge_strategy/*_merged_strategy.ckpt or strategy_R.ckpt (mindrlhf).

    Raises:
        InputError: not a strategy file, stages missing, or one stage of several without the others.
    """
    if not path.is_dir():
        return _assemble({0: _parse(path)}, path)
    patterns = (MERGED_NAME, "*_merged_strategy.ckpt", f"{MERGED_DIRECTORY}/*_merged_strategy.ckpt")
    merged = sorted(file for pattern in patterns for file in path.glob(pattern))
    if len(merged) > 1:
        names = ", ".join(file.name for file in merged)
        raise InputError(path, names, "holds several roles' strategies", "give one of these files")
    if merged:
        return _assemble({0: _parse(merged[0])}, merged[0])
    ranks = sorted(
        (int(match[1]), file) for file in path.iterdir() if (match := _RANK_FILE.fullmatch(file.name))
    )
    if not ranks:
        remedy = "expected merged_ckpt_strategy.ckpt or ckpt_strategy_rank_0.ckpt …"
        raise InputError(path, None, "holds no strategy file", remedy)
    seen: dict[bytes, int] = {}
    files: dict[int, Any] = {}
    for rank, file in ranks:
        content = _content(file)
        if content not in seen:
            seen[content] = rank
            files[rank] = _parse(file)
    return _assemble(files, path)


def _parse(file: Path) -> Any:
    if file.suffix == ".json":
        raise InputError(
            file, None, "is a JSON strategy", "save it as .ckpt (strategy_ckpt_config save_file)"
        )
    try:
        message = ParallelStrategyMap.FromString(_content(file))
    except (DecodeError, UnicodeDecodeError):
        raise InputError(
            file, None, "is not a MindSpore strategy file (protobuf)", "give ckpt_strategy_rank_R.ckpt"
        ) from None
    if not message.parallel_layout_item or not message.parallel_strategy_item:
        raise InputError(file, None, "lists no parameter or no stage", "write the strategy again")
    return message


def _content(file: Path) -> bytes:
    try:
        return read_bytes(file)
    except OSError as error:
        raise InputError(
            file, None, f"cannot be read: {error.strerror}", "give a strategy file or directory"
        ) from None


def _assemble(messages: Mapping[int, Any], path: Path) -> Strategy:
    """One Strategy from a merged message or from one message per stage."""
    stages: dict[int, dict[str, TensorLayout]] = {}
    for message in messages.values():
        first_stage = message.parallel_strategy_item[0].parallel_strategys.stage
        for item in message.parallel_layout_item:
            match = _STAGE_PREFIX.fullmatch(item.param_name)
            stage, name = (int(match[1]), match[2]) if match else (first_stage, item.param_name)
            layout = _layout(item.parallel_layouts, name, stage, path)
            if stages.setdefault(stage, {}).setdefault(name, layout) != layout:
                rule = f"two ranks of stage {stage} disagree on its layout"
                raise InputError(path, name, rule, "mix no runs in one directory")
    if sorted(stages) != list(range(len(stages))):
        rule = "a pipeline stage's strategy is missing"
        raise InputError(path, f"stages {sorted(stages)}", rule, "give the merged file or all ranks' files")
    tensors: dict[str, TensorLayout] = {}
    for stage in sorted(stages):
        for name, layout in stages[stage].items():
            tensors[name] = _join(tensors[name], layout) if name in tensors else layout
    cards = {layout.cards for layout in tensors.values()}
    if len(cards) != 1:
        rule = "parameters disagree on the number of cards per stage"
        raise InputError(path, sorted(cards), rule, "mix no runs in one directory")
    return Strategy(tensors, len(stages), cards.pop())


def _join(first: TensorLayout, second: TensorLayout) -> TensorLayout:
    return TensorLayout(
        first.dev_matrix,
        first.tensor_map,
        first.opt_weight_shard_step,
        first.opt_weight_shard_size,
        (*first.stages, *second.stages),
    )


def _layout(message: Any, name: str, stage: int, path: Path) -> TensorLayout:
    if len(message.dev_matrix) != 1 or len(message.tensor_map) != 1:
        raise InputError(
            path, name, "a dimension split along two axes (Layout) is not supported", "use a plain strategy"
        )
    layout = TensorLayout(
        dev_matrix=tuple(message.dev_matrix[0].dim),
        tensor_map=tuple(message.tensor_map[0].dim),
        opt_weight_shard_step=message.opt_weight_shard_step,
        opt_weight_shard_size=message.opt_weight_shard_size,
        stages=(stage,),
    )
    axes = [axis for axis in layout.tensor_map if axis != -1]
    if len(set(axes)) != len(axes) or any(not 0 <= axis < len(layout.dev_matrix) for axis in axes):
        raise InputError(
            path, name, f"tensor_map {layout.tensor_map} does not fit dev_matrix {layout.dev_matrix}"
        )
    if not layout.dev_matrix or 0 in layout.dev_matrix:
        raise InputError(path, name, f"dev_matrix {layout.dev_matrix} has no cards")
    return layout
