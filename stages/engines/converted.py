"""Import of a Hugging Face directory that an outside program wrote."""

from pathlib import Path

import numpy as np

from stages.base.context import Context
from stages.base.errors import InputError
from stages.models.config import Dtype, ModelConfig
from stages.weights.config import ExportConfig
from stages.weights.dtypes import FLOATS
from stages.weights.export import export
from stages.weights.names import renamed
from stages.weights.progress import to_context
from stages.weights.sources import open_directory
from stages.weights.transfer import read_tensor


def import_converted(context: Context, directory: Path, default_dtype: Dtype | None) -> None:
    """Check names, shapes and numbers, and write the weights with the fetched model's files and names.

    Args:
        context: of stage export.
        directory: the program's result, with its own file names.
        default_dtype: dtype of floating tensors without export.dtype; None: the fetched model's.

    Raises:
        InputError: a tensor is missing or left over, has the wrong shape, or contains NaN or infinity.
    """
    model, config = context.section(ModelConfig, "model"), context.section(ExportConfig, "export")
    tensors = renamed(open_directory(directory), model, directory)
    for name, tensor in tensors.items():
        if tensor.dtype in FLOATS and not np.isfinite(read_tensor(tensor)).all():
            where = f"{directory}: {name}"
            raise InputError(where, None, "contains numbers that are not finite", "train again")
    dtype, progress = config.dtype or default_dtype, to_context(context, "export")
    export(tensors, context.inputs["fetch"], context.output, model, dtype, progress=progress)
