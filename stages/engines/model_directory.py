"""Copies of model directories for engines, which write into the directories that they load.

mindrlhf writes param_name_map.json next to the weights (utils.py, convert_index_json_total and
load_safetensors), and through an existing link. Weights are only read and become links; all else is
copied.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from stages.base.errors import InputError
from stages.weights.header import read_header
from stages.weights.index import INDEX_NAME
from stages.weights.sources import PARAM_MAP_NAME

WEIGHTS = (".safetensors", ".ckpt", ".pt")
PRODUCT_FILES = ("manifest.json", "result.json", PARAM_MAP_NAME)


def copy_model(source: Path, target: Path, linked: Sequence[str] = WEIGHTS) -> None:
    """Replace `target` by links to the weights of a model directory and copies of its other files.

    Args:
        source: model directory, also one of rank directories; it does not change.
        target: the copy.
        linked: suffixes of files that the engine only reads; () if it changes every file.

    Raises:
        InputError: `source` contains no weights.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_dir():
            copy_model(path, target / path.name, linked)
        elif path.suffix in linked:
            (target / path.name).symlink_to(path.resolve())
        elif path.name not in PRODUCT_FILES:
            shutil.copyfile(path, target / path.name)
    if not any(path.suffix in WEIGHTS for path in target.rglob("*")):
        raise InputError(source, None, "contains no weights", "run the stage that wrote it again")


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
