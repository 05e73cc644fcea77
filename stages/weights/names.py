"""Names and shapes of Qwen2's parameters at Hugging Face and in mindformers, and the map between them.

No weight is transposed or permuted: converting is renaming. With qkv_concat mindformers fuses
q/k/v (grouped per key-value head: its queries, its key, its value) and gate/up (row by row).

Source: mindformers 1.6.0, research/qwen2_5/convert_weight.py and models/llama/llama_transformer.py;
transformers 4.57, models/qwen2/modeling_qwen2.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.errors import InputError
from stages.files import read_json
from stages.weights.dtypes import FLOATS
from stages.weights.header import StoredTensor
from stages.weights.shapes import EMBEDDING, HEAD, Shape, parameter_shapes
from stages.weights.sources import Piece, Tensor, whole
from stages.weights.transfer import same_data


@dataclass(frozen=True)
class FileShape:
    """A Shape read from a Hugging Face config.json."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool


def read_shape(directory: Path) -> FileShape:
    """The shape that a Hugging Face directory's config.json tells.

    Raises:
        InputError: no config.json, or a key is missing.
    """
    file = directory / "config.json"
    try:
        values = read_json(file)
        if not isinstance(values, dict):
            raise ValueError("it must be an object")
    except (OSError, ValueError) as error:
        raise InputError(
            file, None, f"is needed and not readable ({error})", "give a Hugging Face directory"
        ) from None
    if not isinstance(values, dict):
        raise InputError(file, values, "must hold a JSON object", "give the config.json of a Qwen2 model")
    arguments: dict[str, Any] = {}
    for key in FileShape.__dataclass_fields__:
        value = values.get(key, False if key == "tie_word_embeddings" else None)
        if type(value) is not (bool if key == "tie_word_embeddings" else int):
            raise InputError(
                f"{file}: {key}", value, "must be given", "give the config.json of a Qwen2 model"
            )
        arguments[key] = value
    return FileShape(**arguments)


_OUTER = {EMBEDDING: "model.embed_tokens.weight", "model.norm_out.weight": "model.norm.weight", HEAD: HEAD}
_LAYER = {
    "attention.wq.weight": "self_attn.q_proj.weight",
    "attention.wq.bias": "self_attn.q_proj.bias",
    "attention.wk.weight": "self_attn.k_proj.weight",
    "attention.wk.bias": "self_attn.k_proj.bias",
    "attention.wv.weight": "self_attn.v_proj.weight",
    "attention.wv.bias": "self_attn.v_proj.bias",
    "attention.wo.weight": "self_attn.o_proj.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
    "feed_forward.w3.weight": "mlp.up_proj.weight",
    "attention_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
}
_FUSED = {
    "attention.w_qkv.weight": ("attention.wq.weight", "attention.wk.weight", "attention.wv.weight"),
    "attention.w_qkv.bias": ("attention.wq.bias", "attention.wk.bias", "attention.wv.bias"),
    "feed_forward.w_gate_hidden.weight": ("feed_forward.w1.weight", "feed_forward.w3.weight"),
}
_LAYER_NAME = re.compile(r"model\.layers\.(\d+)\.(.+)")


def hf_name(name: str) -> str:
    """Hugging Face's name of an unfused mindformers parameter.

    Raises:
        InputError: not a parameter of a Qwen2 model.
    """
    if name in _OUTER:
        return _OUTER[name]
    found = _LAYER_NAME.fullmatch(name)
    if not found or found[2] not in _LAYER:
        raise InputError(
            name, None, "is not a mindformers parameter of a Qwen2 model", "give this model's weights"
        )
    return f"model.layers.{found[1]}.{_LAYER[found[2]]}"


def parts_of(name: str) -> tuple[str, ...]:
    """The unfused mindformers names that a parameter consists of; itself where it is not fused."""
    found = _LAYER_NAME.fullmatch(name)
    if found and found[2] in _FUSED:
        return tuple(f"model.layers.{found[1]}.{part}" for part in _FUSED[found[2]])
    return (name,)


def name_map(shape: Shape, qkv_concat: bool = False) -> dict[str, tuple[str, ...]]:
    """Each mindformers name -> the Hugging Face tensors that it consists of."""
    return {name: tuple(map(hf_name, parts_of(name))) for name in parameter_shapes(shape, qkv_concat)}


def renamed(
    stored: Mapping[str, StoredTensor], names: Mapping[str, Sequence[str]], shape: Shape, source: Path
) -> dict[str, Tensor]:
    """A Hugging Face checkpoint's tensors as mindformers parameters, nothing copied.

    Args:
        stored: Hugging Face names -> tensors on disk.
        names: mindformers name -> Hugging Face names, see `name_map`.
        shape: the model that they must fit.
        source: directory, for messages.

    Raises:
        InputError: a tensor is missing, left over or has the wrong shape.
    """
    _check(stored, {hf_name(name): size for name, size in parameter_shapes(shape).items()}, shape, source)
    sizes = parameter_shapes(shape, qkv_concat=any(len(parts) > 1 for parts in names.values()))
    expected = name_map(shape, qkv_concat=any(len(parts) > 1 for parts in names.values()))
    wrong = min((name for name in {*expected, *names} if expected.get(name) != names.get(name)), default=None)
    if wrong is not None:
        raise InputError(
            f"{source}: {wrong}", None, "the name map belongs to another model", "run convert again"
        )
    return {
        name: whole(stored[parts[0]], name)
        if len(parts) == 1
        else _fused(name, [stored[part] for part in parts], sizes[name], shape)
        for name, parts in names.items()
    }


def check_float(tensor: StoredTensor) -> None:
    """Refuse weights that are no floating-point numbers, as quantised ones are: nothing here trains them.

    Raises:
        InputError: naming file, tensor and dtype.
    """
    if tensor.dtype not in FLOATS:
        rule = f"a weight must be {', '.join(FLOATS[:-1])} or {FLOATS[-1]} (ours: it is trained)"
        remedy = "give the model's weights as they were before quantisation"
        raise InputError(f"{tensor.file}: {tensor.name}", tensor.dtype, rule, remedy)


def _check(
    stored: Mapping[str, StoredTensor], expected: Mapping[str, tuple[int, ...]], shape: Shape, source: Path
) -> None:
    for name, size in expected.items():
        if name not in stored:
            raise InputError(
                f"{source}: {name}",
                None,
                "this tensor is missing",
                "download the model again, or mend the model config",
            )
        check_float(stored[name])
        if stored[name].shape != size:
            rule = f"the model config asks for {list(size)}"
            raise InputError(
                f"{stored[name].file}: {name}",
                list(stored[name].shape),
                rule,
                "give the config of these weights",
            )
    for name, tensor in stored.items():
        # Some exports of tied models repeat the embedding as lm_head, and old ones keep rotary buffers.
        repeated = name == HEAD and same_data(tensor, stored[_OUTER[EMBEDDING]])
        if name not in expected and not repeated and not name.endswith("rotary_emb.inv_freq"):
            raise InputError(
                f"{tensor.file}: {name}",
                None,
                "the model config has no such tensor",
                "give the config of these weights",
            )


def _fused(name: str, parts: Sequence[StoredTensor], size: tuple[int, ...], shape: Shape) -> Tensor:
    tail = tuple(slice(0, one) for one in size[1:])
    pieces = [
        Piece(parts[run.part], (run.rows, *tail), run.first) for run in fused_rows(name, size[0], shape)
    ]
    dtypes = {part.dtype for part in parts}
    if len(dtypes) > 1:
        raise InputError(
            f"{parts[0].file}: {name}",
            sorted(dtypes),
            "its parts must have one dtype to be fused",
            "set qkv_concat=false",
        )
    return Tensor(name, parts[0].dtype, size, tuple(pieces))


@dataclass(frozen=True)
class FusedRows:
    """Consecutive rows of an unfused tensor and where they lie in the fused one."""

    part: int
    """Which of `parts_of`."""
    first: int
    """First row in the part."""
    rows: slice
    """Rows in the fused tensor; its step may be 2."""


def fused_rows(name: str, size: int, shape: Shape) -> list[FusedRows]:
    """Where the rows of a fused parameter's parts lie, for a fused tensor of `size` rows."""
    if "w_gate_hidden" in name:
        return [FusedRows(part, 0, slice(part, size, 2)) for part in range(2)]
    head = size // (shape.num_attention_heads + 2 * shape.num_key_value_heads)
    counts = (head * (shape.num_attention_heads // shape.num_key_value_heads), head, head)
    runs, position = [], 0
    for group in range(shape.num_key_value_heads):
        for part, count in enumerate(counts):
            runs.append(FusedRows(part, group * count, slice(position, position + count)))
            position += count
    return runs
