"""A Hugging Face checkpoint's tensors as mindformers' parameters: renamed, and fused with qkv_concat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import InputError
from stages.base.files import read_json
from stages.models.families import recognised, weights_of, with_weights
from stages.models.family import HEAD, HF_EMBEDDING, Shape
from stages.models.hf_config import NUMBERS, described, head_size
from stages.weights.dtypes import FLOATS
from stages.weights.header import StoredTensor
from stages.weights.sources import Piece, Tensor, whole
from stages.weights.transfer import same_data


@dataclass(frozen=True)
class FileShape:
    """A Shape read from a Hugging Face config.json."""

    family: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool
    head_size: int


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
    family = recognised(values)
    if family is None or family.weights is None:
        rule = f"must be one of a {with_weights()} model (ours: stages/models)"
        raise InputError(f"{file}: architectures", values.get("architectures"), rule, "give such a model")
    told = described(values, family)
    arguments = {key: told[key] for key in (*NUMBERS, "tie_word_embeddings")} | {"head_size": head_size(told)}
    for key, value in arguments.items():
        if type(value) is not (bool if key == "tie_word_embeddings" else int):
            remedy = f"give the config.json of a {family.title} model"
            raise InputError(f"{file}: {key}", value, "must be given", remedy)
    return FileShape(family.name, **arguments)


def name_map(shape: Shape, qkv_concat: bool = False) -> dict[str, tuple[str, ...]]:
    """Each mindformers name -> the Hugging Face tensors that it consists of."""
    return {weight.name: weight.parts for weight in weights_of(shape, qkv_concat)}


def is_fused(names: Iterable[str]) -> bool:
    """Whether parameters have mindformers' names with qkv_concat."""
    return any(name.endswith(".w_qkv.weight") for name in names)


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
    _check(stored, {weight.parts[0]: weight.shape for weight in weights_of(shape)}, source)
    fused = any(len(parts) > 1 for parts in names.values())
    weights = {weight.name: weight for weight in weights_of(shape, fused)}
    expected = {name: weight.parts for name, weight in weights.items()}
    wrong = min((name for name in {*expected, *names} if expected.get(name) != names.get(name)), default=None)
    if wrong is not None:
        raise InputError(
            f"{source}: {wrong}", None, "the name map belongs to another model", "run convert again"
        )
    return {
        name: whole(stored[parts[0]], name)
        if len(parts) == 1
        else _fused(name, [stored[part] for part in parts], weights[name].shape, shape)
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


def _check(stored: Mapping[str, StoredTensor], expected: Mapping[str, tuple[int, ...]], source: Path) -> None:
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
        repeated = name == HEAD and same_data(tensor, stored[HF_EMBEDDING])
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
    """Which of the Weight's."""
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
