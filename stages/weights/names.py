"""A Hugging Face checkpoint's tensors as mindformers' parameters: renamed, and fused with qkv_concat."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from stages.base.errors import ConfigError, InputError
from stages.base.files import read_object
from stages.base.reader import read
from stages.models.config import Dtype, Shape
from stages.models.config_keys import described, refused
from stages.models.families import family_of, recognised, tensor_shapes, trained_by, weights_of
from stages.models.family import Weight
from stages.weights.dtypes import FLOATS, storage_code
from stages.weights.header import StoredTensor
from stages.weights.sources import Piece, Tensor
from stages.weights.transfer import same_data


def read_shape(directory: Path) -> Shape:
    """Return the shape from a Hugging Face directory's config.json.

    Raise InputError or ConfigError if there is none, or its architecture or a key is not supported.
    """
    file = directory / "config.json"
    values = read_object(file, "give a Hugging Face directory")
    family = recognised(values)
    if family is None:
        rule = f"must be one of a {trained_by()} model (ours: stages/models)"
        raise InputError(f"{file}: architectures", values.get("architectures"), rule, "give such a model")
    if problems := refused(values, family, file):
        raise ConfigError(problems)
    section = described(values, family) | {"family": family.name}
    shape = {field.name: section[field.name] for field in fields(Shape) if field.name in section}
    return read(Shape, shape, str(file))


def name_map(shape: Shape, qkv_concat: bool = False) -> dict[str, tuple[str, ...]]:
    """Return each mindformers name -> the Hugging Face tensors that it consists of."""
    return {weight.name: weight.parts for weight in weights_of(shape, qkv_concat)}


def is_fused(names: Iterable[str]) -> bool:
    """Return True if parameters have mindformers' names with qkv_concat."""
    return any(name.endswith(".w_qkv.weight") for name in names)


def renamed(
    stored: Mapping[str, StoredTensor], shape: Shape, source: Path, qkv_concat: bool = False
) -> dict[str, Tensor]:
    """Return a Hugging Face checkpoint's tensors as mindformers parameters, without copying.

    `source`: their directory, for messages. Raise InputError if they are not those of the shape.
    """
    weights = weights_of(shape, qkv_concat)
    check_stored(stored, weights, shape, source)
    return {weight.name: _arranged(weight, [stored[part] for part in weight.parts]) for weight in weights}


def check_float(tensor: StoredTensor) -> None:
    """Refuse weights that are no floating-point numbers, as quantised ones are: nothing here trains them.

    Raises:
        InputError: naming file, tensor and dtype.
    """
    if tensor.dtype not in FLOATS:
        rule = f"a weight must be {', '.join(FLOATS[:-1])} or {FLOATS[-1]} (ours: it is trained)"
        remedy = "give the model's weights as they were before quantisation, or cast (of DeepSeek-V3's FP8:"
        remedy += " mindformers' research/deepseek3/fp8_cast_bf16.py)"
        raise InputError(f"{tensor.file}: {tensor.name}", tensor.dtype, rule, remedy)


def check_stored(
    stored: Mapping[str, StoredTensor], weights: Iterable[Weight], shape: Shape, source: Path
) -> None:
    """Check that the tensors of a Hugging Face checkpoint are those of a model.

    Raises:
        InputError: a tensor is missing or unknown, or its shape or dtype is wrong.
    """
    expected = tensor_shapes(weights)
    for name, size in expected.items():
        if name not in stored:
            remedy = "download the model again, or mend the model config"
            raise InputError(f"{source}: {name}", None, "this tensor is missing", remedy)
        check_float(stored[name])
        if stored[name].shape != size:
            rule = f"the model config asks for {list(size)}"
            remedy = "give the config of these weights"
            raise InputError(f"{stored[name].file}: {name}", list(stored[name].shape), rule, remedy)
    for name, tensor in stored.items():
        if name in expected or name.endswith("rotary_emb.inv_freq"):  # a buffer of old exports
            continue
        family = family_of(shape)
        repeats = family.repeated(shape).get(name)
        left = family.untrained is not None and name.startswith(family.untrained(shape)[0])
        if not left and (repeats is None or not same_data(tensor, stored[repeats])):
            rule = "the model config has no such tensor"
            raise InputError(f"{tensor.file}: {name}", None, rule, "give the config of these weights")


def _arranged(weight: Weight, parts: Sequence[StoredTensor]) -> Tensor:
    """Return a parameter and the position of its rows in the tensors that it consists of."""
    remedy = "give weights of one dtype" if weight.stacked else "set qkv_concat=false"
    dtype = one_dtype(weight, parts, None, remedy)
    tail = tuple(slice(0, size) for size in weight.shape[1:])
    if weight.stacked:
        parts = [replace(part, shape=(1, *part.shape)) for part in parts]
    pieces = (Piece(parts[block.part], (block.rows, *tail), block.first, block.step) for block in weight.rows)
    return Tensor(weight.name, dtype, weight.shape, tuple(pieces))


def one_dtype(weight: Weight, parts: Sequence[StoredTensor], dtype: Dtype | None, remedy: str) -> str:
    """Return the code that all parts of a weight have, or are to be stored in; refuse different ones."""
    codes = sorted({storage_code(part.dtype, dtype) for part in parts})
    if len(codes) > 1:
        rule = "its parts must have one dtype to be fused"
        raise InputError(f"{parts[0].file}: {weight.name}", codes, rule, remedy)
    return codes[0]
