"""MindSpore's strategy files: the layouts of all parameters of a run.

Source: mindspore 2.7.0, ccsrc/utils/node_strategy.proto (the format),
python/mindspore/parallel/_parallel_serialization.py (readers) and
ccsrc/frontend/parallel/strategy_checkpoint/parallel_strategy_checkpoint.cc (writer).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stages.base.errors import InputError
from stages.base.files import read_bytes
from stages.models.tensor_layout import Box, TensorLayout, full_box, slice_of
from stages.weights.wire import Read, decode, encode_field

MERGED_NAME = "merged_ckpt_strategy.ckpt"
"""mindformers' name of a merged file."""
MERGED_DIRECTORY = "merge_strategy"
"""Directory of mindrlhf's merged files, one per role: *_merged_strategy.ckpt."""
_MINDRLHF_PREFIXES = ("grpo_model_train.policy_model.model.", "grpo_model.policy_model.model.")
_CLONES = ("adam_m.", "adam_v.", "accu_grads.")
_RANK_FILE = re.compile(r"(?:ckpt_strategy_rank|strategy)_(\d+)\.ckpt")
_STAGE_PREFIX = re.compile(r"(\d+)-(.+)", re.DOTALL)


def plain_name(name: str) -> str:
    """Return a parameter's name without the prefix of mindrlhf's trainer or generator.

    Source: mindrlhf e8a8fc1, see the strategy and checkpoint names in its trainers.
    """
    clone = next((prefix for prefix in _CLONES if name.startswith(prefix)), "")
    plain = name[len(clone) :]
    for prefix in _MINDRLHF_PREFIXES:
        plain = plain.removeprefix(prefix)
    if plain.startswith(("model.model.", "model.lm_head.")):  # the reference model's
        plain = plain.removeprefix("model.")
    return clone + plain


@dataclass(frozen=True)
class Strategy:
    """All parameters' layouts of one run."""

    tensors: Mapping[str, TensorLayout]
    """Parameter name -> layout; includes optimizer states (adam_m., adam_v.) where the files list them."""
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

    def boxes(self, shapes: Mapping[str, Sequence[int]], rank: int) -> dict[str, Box]:
        """Return the part of each full tensor that a rank holds; counters are on every rank.

        Raises:
            InputError: a shape does not fit its layout.
        """
        result = {}
        for name, shape in shapes.items():
            if name not in self.tensors:
                result[name] = full_box(shape)
            elif self.holds(name, rank):
                result[name] = slice_of(self.tensors[name], shape, rank, name)
        return result

    def check_names(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Check that full tensors are the strategy's; MindSpore copies or drops what differs, silently.

        Tensors of one element (counters) need not be listed.
        """
        remedy = "give the strategy of this model"
        parameters = [name for name, shape in shapes.items() if math.prod(shape) != 1]
        for name in parameters:
            if name not in self.tensors:
                raise InputError(name, list(shapes[name]), "the strategy does not list this tensor", remedy)
        if all(name.startswith(_CLONES) for name in parameters):
            return  # an optimizer's checkpoint, without the parameters themselves
        for name in self.tensors:
            if name not in shapes and not name.startswith(_CLONES):
                raise InputError(name, None, "the strategy lists this tensor, the weights do not", remedy)


def encode(stages: Mapping[int, Mapping[str, TensorLayout]], prefixed: bool = False) -> bytes:
    """Return the file of some pipeline stages.

    The ranks of a stage share a file without prefixes; merge_pipeline_strategys prefixes names with "STAGE-".
    """
    # MindSpore's readers take the stage from the first operator's strategy and refuse a file without one;
    # nothing else of the operators' strategies is ever read.
    operators = [
        encode_field(1, f"stage_{stage}".encode()) + encode_field(2, encode_field(1, stage))
        for stage in stages
    ]
    parameters = [
        encode_field(1, (f"{stage}-" * prefixed + name).encode()) + encode_field(2, _encode_layout(layout))
        for stage, tensors in stages.items()
        for name, layout in tensors.items()
    ]
    fields = [encode_field(2, operator) for operator in operators]
    fields += [encode_field(3, parameter) for parameter in parameters]
    return encode_field(1, 1) + b"".join(fields)  # current_stage, always 1


def _encode_layout(layout: TensorLayout) -> bytes:
    dev_matrix, tensor_map = (
        b"".join(encode_field(1, size) for size in sizes) for sizes in (layout.dev_matrix, layout.tensor_map)
    )
    # param_split_shape, indices_offset and field (3 to 5) are empty in MindSpore's files
    shard = (layout.opt_weight_shard_step, layout.opt_weight_shard_size)
    values: tuple[int | bytes, ...] = (dev_matrix, tensor_map, b"", b"", 0, *shard)
    return b"".join(encode_field(number, value) for number, value in enumerate(values, start=1))


def read_strategy(path: Path) -> Strategy:
    """Read a merged strategy file, a rank's file (one pipeline stage only), or a directory of either.

    Args:
        path: a .ckpt file, or a directory with merged_ckpt_strategy.ckpt or ckpt_strategy_rank_R.ckpt
            (mindformers), merge_strategy/*_merged_strategy.ckpt or strategy_R.ckpt (mindrlhf, whose
            prefixes are removed from the names).

    Raises:
        InputError: not a strategy file, stages missing, or one stage of several without the others.
    """
    if not path.is_dir():
        return _read([path], path)
    patterns = (MERGED_NAME, "*_merged_strategy.ckpt", f"{MERGED_DIRECTORY}/*_merged_strategy.ckpt")
    merged = sorted(file for pattern in patterns for file in path.glob(pattern))
    if len(merged) > 1:
        names = ", ".join(file.name for file in merged)
        raise InputError(path, names, "holds several roles' strategies", "give one of these files")
    ranks = [file for file in sorted(path.iterdir()) if _RANK_FILE.fullmatch(file.name)]
    if not merged and not ranks:
        remedy = "expected merged_ckpt_strategy.ckpt or ckpt_strategy_rank_0.ckpt …"
        raise InputError(path, None, "holds no strategy file", remedy)
    return _read(merged or ranks, path)


def _read(files: Sequence[Path], path: Path) -> Strategy:
    """Return the strategy that a merged file, or the files of all ranks, describe."""
    stages: dict[int, dict[str, TensorLayout]] = {}
    seen = set()  # the ranks of a stage have equal files
    for file in files:
        try:
            content = read_bytes(file)
        except OSError as error:
            remedy = "give a strategy file or directory"
            raise InputError(file, None, f"cannot be read: {error.strerror}", remedy) from None
        if content in seen:
            continue
        seen.add(content)
        for stage, name, layout in _decode_file(content, file):
            if stages.setdefault(stage, {}).setdefault(name, layout) != layout:
                rule = f"two ranks of stage {stage} disagree on its layout"
                raise InputError(path, name, rule, "give the files of one run")
    if sorted(stages) != list(range(len(stages))):
        rule = "a pipeline stage's strategy is missing"
        raise InputError(path, f"stages {sorted(stages)}", rule, "give the merged file or all ranks' files")
    tensors: dict[str, TensorLayout] = {}
    for stage in sorted(stages):
        for name, layout in stages[stage].items():
            earlier = tensors[name].stages if name in tensors else ()
            tensors[name] = replace(tensors.get(name, layout), stages=(*earlier, stage))
    cards = {layout.cards for layout in tensors.values()}
    if len(cards) != 1:
        rule = "parameters disagree on the number of cards per stage"
        raise InputError(path, sorted(cards), rule, "give the files of one run")
    return Strategy(tensors, len(stages), cards.pop())


def _decode_file(content: bytes, file: Path) -> list[tuple[int, str, TensorLayout]]:
    """Return pipeline stage, name and layout of each parameter in a file."""

    def read(begin: int, count: int) -> bytes:
        return content[begin : begin + count]

    result = []
    try:
        items = decode(read, range(len(content)))[1]
        operator = decode(read, items[2][0])[1]
        first_stage = decode(read, operator[2][-1])[0][1][-1]
        for item in items[3]:
            fields = decode(read, item)[1]
            text = fields[1][-1]
            name = content[text.start : text.stop].decode()
            match = _STAGE_PREFIX.fullmatch(name)
            stage, name = (int(match[1]), match[2]) if match else (first_stage, name)
            name = plain_name(name)
            result.append((stage, name, _decode_layout(read, fields[2][-1], stage, name, file)))
        if not result:
            raise ValueError("no parameter")
    except (ValueError, IndexError):
        rule = "is not a MindSpore strategy file, or lists no parameter or no stage"
        remedy = "give ckpt_strategy_rank_R.ckpt; JSON strategies are not read"
        raise InputError(file, None, rule, remedy) from None
    return result


def _decode_layout(read: Read, message: range, stage: int, name: str, file: Path) -> TensorLayout:
    numbers, messages = decode(read, message)
    if len(messages[1]) != 1 or len(messages[2]) != 1:
        rule = "a dimension split along two axes (Layout) is not supported"
        raise InputError(file, name, rule, "use a plain strategy")
    dev_matrix, tensor_map = (tuple(decode(read, messages[field][0])[0][1]) for field in (1, 2))
    axes = [axis for axis in tensor_map if axis != -1]
    if len(set(axes)) != len(axes) or any(not 0 <= axis < len(dev_matrix) for axis in axes):
        raise InputError(file, name, f"tensor_map {tensor_map} does not fit dev_matrix {dev_matrix}")
    if not dev_matrix or min(dev_matrix) < 1:
        raise InputError(file, name, f"dev_matrix {dev_matrix} has no cards")
    return TensorLayout(dev_matrix, tensor_map, numbers[6][-1], numbers[7][-1], (stage,))
