"""The weight files of a Hugging Face directory that count: a single file before an index.

Source: transformers 4.57 and 5.12, modeling_utils.py, _get_resolved_checkpoint_files: model.safetensors, then
model.safetensors.index.json, then pytorch_model.bin, then pytorch_model.bin.index.json.
"""

from pathlib import Path

from stages.base.files import read_json

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"


def unused_index(directory: Path) -> str | None:
    """Return a warning if an index of other files is not used, because there is a single file; else None."""
    index = directory / INDEX_NAME
    if not (directory / SINGLE_NAME).is_file() or not index.is_file():
        return None
    try:
        values = read_json(index)
    except (OSError, ValueError):
        values = None
    files = values.get("weight_map") if isinstance(values, dict) else None
    if isinstance(files, dict) and set(map(str, files.values())) == {SINGLE_NAME}:
        return None
    return (
        f"{directory}: holds both {SINGLE_NAME} and {INDEX_NAME} of other files; {SINGLE_NAME} is read, as "
        "transformers does; remove the one that is out of date"
    )
