"""mindformers' sharding of a model's parameters, computed from the layout without compiling the network.

Source: mindformers 1.6.0, models/llama/{llama,llama_layer,llama_transformer}.py (the shard calls),
models/utils.py: LayerSetting (pipeline stages); mindspore 2.7.0's parallel front end turns an
operator's strategy into a device matrix: axes in the strategy's order, the repeated ones last, axes of size 1
removed. Compared field by field with files that the front end wrote (tests/data/strategy).
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stages.base.errors import ConfigError, Fault, Problem
from stages.base.layout import RoleLayout
from stages.models.config import ITEM_BYTES, ModelConfig
from stages.models.families import family_of, weights_of
from stages.models.family import Cut, Weight
from stages.models.tensor_layout import TensorLayout

OPTIMIZER_CLONES = ("adam_m.", "adam_v.")


def parameter_layouts(
    model: ModelConfig, layout: RoleLayout, path: str = "layout"
) -> tuple[dict[str, TensorLayout], ...]:
    """Return the layouts of all parameters, per pipeline stage, without optimizer states.

    Raises:
        ConfigError: the layers don't fit the stages, or a dimension does not divide.
    """
    stage_of = stages_of_layers(model, layout, path)
    result: tuple[dict[str, TensorLayout], ...] = tuple({} for _ in range(layout.pipeline_stage))
    check_shape(model, layout, path)
    for weight in weights_of(model, model.qkv_concat):
        first = 0 if weight.cut is Cut.EMBEDDING else len(result) - 1
        stage = first if weight.layer is None else stage_of[weight.layer]
        result[stage][weight.name] = weight_layout(weight, model, layout, stage)
    return result


@dataclass(frozen=True)
class Kinds:
    """A model's layers, grouped by the shapes and sharding of their weights."""

    around: tuple[Weight, ...]
    """Weights outside the layers."""
    weights: tuple[tuple[Weight, ...], ...]
    """Weights of the first layer of each kind."""
    of_layer: tuple[int, ...]
    """The kind of each layer."""


@functools.lru_cache(maxsize=256)  # shared by the points of a sweep and all layouts of a model
def kinds_of_layers(model: ModelConfig) -> Kinds:
    """Return the groups of layers whose weights have the same shapes and sharding."""
    listed = weights_of(model, model.qkv_concat)
    layers: list[list[Weight]] = [[] for _ in range(model.num_hidden_layers)]
    for weight in listed:
        if weight.layer is not None:
            layers[weight.layer].append(weight)
    kinds: dict[tuple[tuple[tuple[int, ...], Cut], ...], int] = {}
    first, of_layer = [], []
    for layer in layers:
        key = tuple((weight.shape, weight.cut) for weight in layer)
        if key not in kinds:
            kinds[key] = len(kinds)
            first.append(tuple(layer))
        of_layer.append(kinds[key])
    return Kinds(tuple(weight for weight in listed if weight.layer is None), tuple(first), tuple(of_layer))


def check_shape(model: ModelConfig, layout: RoleLayout, path: str) -> None:
    """Refuse a layout that cannot cut all weights evenly.

    Raises:
        ConfigError: naming the key.
    """
    faults = {"expert_parallel": experts_fault(model, layout), "model_parallel": shape_fault(model, layout)}
    problems = [
        Problem(f"{path}.{key}", getattr(layout, key), *fault[:2]) for key, fault in faults.items() if fault
    ]
    if problems:
        raise ConfigError(problems)


def experts_fault(model: ModelConfig, layout: RoleLayout) -> Fault:
    """Check that expert_parallel divides the cards of a stage and a layer's experts."""
    experts, parts = family_of(model).experts, layout.expert_parallel
    if experts is None or parts == 1:
        return None
    cards = layout.cards // layout.pipeline_stage
    for what, count in (("cards of a pipeline stage", cards), ("experts", experts(model).count)):
        if count % parts:
            return f"must divide the {count} {what}", "use a smaller one"
    return None


@functools.lru_cache(maxsize=4096)  # shared by the points of a sweep
def shape_fault(model: ModelConfig, layout: RoleLayout) -> Fault:
    """Return the first weight that a layout cannot divide evenly."""
    kinds = kinds_of_layers(model)
    for weight in itertools.chain(kinds.around, *kinds.weights):
        if weight.stacked:  # experts_fault
            continue
        tensor = weight_layout(weight, model, layout)
        for size, parts in zip(weight.shape, tensor.parts, strict=True):
            if size % parts:
                rule = f"must divide {weight.name} {list(weight.shape)}: {size} is not divisible by {parts}"
                return rule, "use a smaller one"
    return None


def offset_fault(model: ModelConfig, layout: RoleLayout) -> Fault:
    """Check that the stages' layers add up to the model's."""
    stages, layers = layout.pipeline_stage, model.num_hidden_layers
    counts = _layers_of_stages(model, layout)
    if len(counts) == stages and sum(counts) == layers and min(counts) >= 1:
        return None
    rule = f"{layers} layers on {stages} stages: stage s holds {layers // stages} + offset[s], at least 1"
    return rule, f"give {stages} numbers with the sum {layers % stages}"


def with_clones(tensors: dict[str, TensorLayout]) -> dict[str, TensorLayout]:
    """Add Adam's two moments, which have the layouts of their parameters."""
    clones = {clone + name: layout for clone in OPTIMIZER_CLONES for name, layout in tensors.items()}
    return tensors | clones


def stages_of_layers(model: ModelConfig, layout: RoleLayout, path: str = "layout") -> list[int]:
    """Return the pipeline stage of each decoder layer; a stage has L // pp + offset[stage] layers.

    Raises:
        ConfigError: the stages don't sum up to the model's layers.
    """
    if fault := offset_fault(model, layout):
        raise ConfigError([Problem(f"{path}.offset", list(layout.offset), *fault[:2])])
    return [stage for stage, count in enumerate(_layers_of_stages(model, layout)) for _ in range(count)]


def _layers_of_stages(model: ModelConfig, layout: RoleLayout) -> list[int]:
    equal = model.num_hidden_layers // layout.pipeline_stage
    return [equal + extra for extra in layout.offset or (0,) * layout.pipeline_stage]


def warnings(model: ModelConfig, layout: RoleLayout) -> list[str]:
    """Return warnings about layouts that MindSpore or mindformers refuses, or that are untested."""
    mp, pp, cp = layout.model_parallel, layout.pipeline_stage, layout.context_parallel
    lines = []
    for name in ("num_attention_heads", "num_key_value_heads"):
        if (heads := getattr(model, name)) % mp:
            lines.append(f"{name}={heads} is not divisible by model_parallel={mp}: mindformers refuses it")
    tied = model.tie_word_embeddings
    replicated = layout.data_parallel * cp > 1 or (mp > 1 and _replicates_embedding(model, layout))
    if tied and pp > 1 and replicated:
        lines.append("tied embeddings with pipeline_stage>1 on replicas: MindSpore's front end aborted")
    elif tied and pp > 1:
        lines.append("tied embeddings with pipeline_stage>1: only stage 0's ranks hold the embedding")
    if tied and cp > 1 and not _replicates_embedding(model, layout):
        lines.append("tied embeddings with context_parallel>1: MindSpore refuses it without vocab_emb_dp")
    experts = family_of(model).experts is not None
    if layout.expert_parallel > 1 and not experts:
        lines.append("expert_parallel>1: nothing to split in a dense model; never compared with MindSpore")
    if experts and layout.context_parallel > 1:
        lines.append("context_parallel>1 with experts: never compared with MindSpore")
    return lines


def weight_layout(weight: Weight, model: ModelConfig, layout: RoleLayout, stage: int = 0) -> TensorLayout:
    """Return the position of one weight's slices on the cards of its pipeline stage."""
    # A tied embedding that its lookup would replicate is sharded for lm_head's product, which uses it later.
    by_head = weight.cut is Cut.EMBEDDING and model.tie_word_embeddings and layout.pipeline_stage == 1
    cut = Cut.HEAD if by_head and _replicates_embedding(model, layout) else weight.cut
    dev_matrix, tensor_map = _arrange(*_axes(cut, len(weight.shape), model, layout))
    tensor = TensorLayout(dev_matrix, tensor_map, 0, 0, (stage,))
    step, size = _optimizer_shard(weight, tensor, model, layout)
    return replace(tensor, opt_weight_shard_step=step, opt_weight_shard_size=size)


def _replicates_embedding(model: ModelConfig, layout: RoleLayout) -> bool:
    ways = layout.model_parallel * layout.context_parallel
    return layout.vocab_emb_dp or model.vocab_size % ways != 0


def _axes(
    cut: Cut, dimensions: int, model: ModelConfig, layout: RoleLayout
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Return the cards per axis, and per tensor dimension the index of the axis that splits it."""
    dp, mp, cp = layout.data_parallel, layout.model_parallel, layout.context_parallel
    if cut is Cut.EMBEDDING:  # llama_layer.py:145
        replicated = _replicates_embedding(model, layout)
        return ((dp, cp, mp), (None, None)) if replicated else ((dp, mp * cp), (1, None))
    if cut is Cut.FINAL_NORM:  # llama.py:295
        return (dp, cp, mp), (None,)
    if cut is Cut.LAYER_NORM:  # llama_transformer.py:982
        return (dp, cp * mp), (None,)
    if cut is Cut.HEAD:  # llama.py:539
        replicated = layout.vocab_emb_dp or model.vocab_size % mp != 0
        return (dp * cp, mp), (None if replicated else 1, None)
    if cut is Cut.EXPERTS:  # llama_layer.py:517, with expert_model_parallel=1
        return (dp * cp * mp // layout.expert_parallel, layout.expert_parallel), (1, None, None)
    if cut is Cut.ROUTER:  # moe.py:927 and :691
        return (dp * cp * mp,), (None,) * dimensions
    if cut is Cut.FULL:  # research/deepseek3/deepseek2_model.py:502 and :515
        axes = (dp * mp, cp) if layout.use_seq_parallel else (dp, cp * mp)
        return axes, (None,) * dimensions
    columns = cut in (Cut.COLUMNS, Cut.FUSED_COLUMNS)
    if cut is Cut.FUSED_ROWS or (cut is Cut.FUSED_COLUMNS and not layout.use_seq_parallel):
        # llama_layer.py:493 leaves context_parallel out, so it is repeated on the right; for w2
        # use_seq_parallel sets it again (llama_transformer.py:1029)
        return (dp, mp, cp), (None, 1) if columns else (1, None)
    return (dp * cp, mp), (None, 1) if columns else (1, None)[:dimensions]


def _arrange(axes: Sequence[int], split: Sequence[int | None]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Remove axes of size 1; `split` names per tensor dimension the index in `axes`."""
    used = [i for i, size in enumerate(axes) if size > 1]
    tensor_map = tuple(
        -1 if axis is None or axis not in used else len(used) - 1 - used.index(axis) for axis in split
    )
    return tuple(axes[i] for i in used) or (1,), tensor_map


def _optimizer_shard(
    weight: Weight, tensor: TensorLayout, model: ModelConfig, layout: RoleLayout
) -> tuple[int, int]:
    """Return opt_weight_shard_step and _size; (0, 0) if the parallel optimizer leaves the parameter whole."""
    if not layout.enable_parallel_optimizer or len(weight.shape) < 2 or weight.cut is Cut.EMBEDDING:
        return 0, 0
    size_bytes = math.prod(weight.shape) * ITEM_BYTES[model.param_init_type]
    if size_bytes < layout.parallel_optimizer_threshold_kb * 1024:
        return 0, 0
    size, replicas = layout.optimizer_weight_shard_size, tensor.replicas
    if size in (0, 1):  # mindspore ignores values that are not above 1 (_auto_parallel_context.py:1157)
        size = -1
    size = min(size, replicas)
    shared = replicas if size == -1 else size
    rows = weight.shape[0] // tensor.parts[0]
    if replicas == 1 or replicas % shared or rows % shared:
        return 0, 0
    # Ranks of one replica group: first 0, last all unsplit axes at their end.
    last = sum(
        (tensor.dev_matrix[axis] - 1) * math.prod(tensor.dev_matrix[axis + 1 :])
        for axis in tensor.unsplit_axes
    )
    return last // (replicas - 1), size
