"""Copies of model directories for engines, which write into them, and import of those that they wrote.

mindrlhf writes param_name_map.json next to the weights (utils.py, convert_index_json_total and
load_safetensors), and through an existing link. Weights are only read and become links; all else is
copied.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stages.base.context import Context
from stages.base.errors import InputError
from stages.models.config import Dtype, ModelConfig
from stages.weights.config import ExportConfig
from stages.weights.dtypes import FLOATS
from stages.weights.export import export
from stages.weights.header import read_header
from stages.weights.index import INDEX_NAME
from stages.weights.names import renamed
from stages.weights.sources import PARAM_MAP_NAME, open_directory
from stages.weights.transfer import read_tensor

WEIGHTS = (".safetensors", ".ckpt", ".pt")
PRODUCT_FILES = ("manifest.json", "result.json", PARAM_MAP_NAME)


def copy_model(source: Path, target: Path, linked: Sequence[str] = WEIGHTS) -> None:
    """Replace `target` by links to a model directory's `linked` files and copies of all others."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_dir():
            copy_model(path, target / path.name, linked)
        elif path.suffix in linked:
            (target / path.name).symlink_to(path.resolve())
        elif path.name not in PRODUCT_FILES:
            shutil.copyfile(path, target / path.name)


def add_index(directory: Path) -> None:
    """Write model.safetensors.index.json if a single file of weights has none.

    mindrlhf only warns without an index and then loads nothing by name (convert_index_json_total).
    """
    index = directory / INDEX_NAME
    if index.exists():
        return
    files = sorted(directory.glob("*.safetensors"))
    headers = {file.name: read_header(file).tensors for file in files}
    total = sum(tensor.nbytes for tensors in headers.values() for tensor in tensors.values())
    weight_map = {name: file for file, tensors in headers.items() for name in tensors}
    content = {"metadata": {"total_size": total}, "weight_map": weight_map}
    index.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def import_converted(context: Context, directory: Path, default_dtype: Dtype | None) -> None:
    """Check names, shapes and numbers, and write the weights with the fetched model's files and names.

    Without export.dtype floating tensors get `default_dtype`; None stands for the fetched model's.

    Raises:
        InputError: a tensor is missing or left over, has the wrong shape, or contains NaN or infinity.
    """
    model, config = context.section(ModelConfig, "model"), context.section(ExportConfig, "export")
    tensors = renamed(open_directory(directory), model, directory)
    for name, tensor in tensors.items():
        if tensor.dtype in FLOATS and not np.isfinite(read_tensor(tensor)).all():
            where = f"{directory}: {name}"
            raise InputError(where, None, "contains numbers that are not finite", "train again")
    dtype, progress = config.dtype or default_dtype, context.progress_in_bytes("export")
    export(tensors, context.inputs["fetch"], context.output, model, dtype, progress=progress)
