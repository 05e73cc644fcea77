"""The convert stage: from Hugging Face's names to mindformers'.

Only names change, so by default only a name map is written, and split reads the Hugging Face files through
it: no second copy of the model is made.
"""

import json
import sys
from pathlib import Path

from stages.base.context import Context, Progress
from stages.base.errors import ConfigError, InputError, Problem
from stages.base.files import read_object, understood
from stages.models.config import Dtype, ModelConfig, Shape
from stages.models.families import family_of
from stages.weights.complete import as_source, write_complete
from stages.weights.config import ConvertConfig, Format
from stages.weights.names import is_fused, name_map, read_shape, renamed
from stages.weights.outputs import complete_directory
from stages.weights.sources import Tensor, as_tensor, open_directory

NAME_MAP = "name_map.json"
"""File that convert writes if it copies no weights: {dtype: cast to apply, tensors: name -> source names}."""


def run(context: Context) -> None:
    """Check the fetched weights against the model config; write the name map or renamed files."""
    model, config = context.section(ModelConfig, "model"), context.section(ConvertConfig, "convert")
    source = context.inputs["fetch"]
    if config.materialize:
        progress = context.progress_in_bytes("convert")
        convert(
            source, context.output, model, model.qkv_concat, config.dtype, config.format, progress=progress
        )
    else:
        _open_renamed(source, model, model.qkv_concat)  # checks every name and shape
    if not config.materialize or config.format == "ckpt":  # split reads the source, not a .ckpt
        content = {"dtype": config.dtype, "tensors": name_map(model, model.qkv_concat)}
        (context.output / NAME_MAP).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _open_renamed(source: Path, shape: Shape, qkv_concat: bool) -> dict[str, Tensor]:
    """Return the tensors of a Hugging Face directory by mindformers' names; warn of those never trained."""
    stored = open_directory(source)
    tensors = renamed(stored, shape, source, qkv_concat)
    if (untrained := family_of(shape).untrained) is not None:
        begin, what = untrained(shape)
        if count := sum(name.startswith(begin) for name in stored):
            rule = f"{begin}* is left out, {count} tensors: {what}, which is not trained"
            print(f"warning: convert: {rule}", file=sys.stderr)
    return tensors


def convert(
    source: Path, out: Path, shape: Shape, qkv_concat: bool, dtype: Dtype | None,
    file_format: Format = "safetensors", progress: Progress | None = None,
) -> None:  # fmt: skip
    """Write a Hugging Face directory's weights under mindformers' names; a tied model gets no lm_head.weight.

    `out`: an existing directory, which gets as many safetensors files as the source and param_name_map.json,
    or one model.ckpt.

    Raises:
        InputError: naming file and tensor.
    """
    tensors = _open_renamed(source, shape, qkv_concat)
    write_complete(tensors, as_source(tensors), out, dtype, file_format, progress)


def convert_directory(
    source: Path, out: Path, qkv_concat: bool, dtype: Dtype | None, progress: Progress | None = None,
    file_format: Format = "safetensors",
) -> None:  # fmt: skip
    """Convert a Hugging Face directory of the shape in its config.json; `out` appears when complete."""
    shape = read_shape(source)
    if qkv_concat and not family_of(shape).fuses:
        rule = f"mindformers stores {family_of(shape).title} with q, k and v apart"
        raise ConfigError([Problem("qkv_concat", True, rule, "leave it out")])
    with complete_directory(out) as directory:
        convert(source, directory, shape, qkv_concat, dtype, file_format, progress=progress)


def converted(artifact: Path, source: Path, model: ModelConfig) -> tuple[dict[str, Tensor], Dtype | None]:
    """Return the tensors of a convert artifact made from `source`, and the cast that is still to be applied.

    Raise InputError if the name map does not fit model or source.
    """
    file = artifact / NAME_MAP
    if not file.is_file():
        return {name: as_tensor(stored) for name, stored in open_directory(artifact).items()}, None
    remedy = "run convert again"
    values = read_object(file, remedy)
    with understood(file, "a name map", remedy):
        names = {str(name): tuple(map(str, parts)) for name, parts in values["tensors"].items()}
        dtype = values["dtype"]
    if names != name_map(model, is_fused(names)):
        raise InputError(file, None, "the name map belongs to another model", remedy)
    return renamed(open_directory(source), model, source, is_fused(names)), dtype
