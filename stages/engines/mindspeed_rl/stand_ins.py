"""Writable stand-ins for what the programs read: some write beside it, and no artifact may change.

PromptDataset leaves an index beside the data (mindspeed_rl/datasets/utils.py, _build_index_mappings), and
the converter puts its result below the original's directory.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from stages.base.errors import InputError
from stages.engines.mindspeed_rl.checkpoints import TRACKER
from stages.models.config import ModelConfig


def link_files(files: Iterable[Path], target: Path) -> None:
    """Make `target` anew with a link to each file.

    Raises:
        InputError: a file is missing.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in files:
        if not file.is_file():
            raise InputError(file, None, "is missing", "run the stage that wrote it again")
        (target / file.name).symlink_to(file.resolve())


def link_mcore(source: Path, target: Path) -> None:
    """Make `target` anew: links to the weights of an mcore directory, and its tracker as a copy."""
    shutil.rmtree(target, ignore_errors=True)
    for file in sorted(source.rglob("*.pt")):
        linked = target / file.relative_to(source)
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.symlink_to(file.resolve())
    shutil.copyfile(source / TRACKER, target / TRACKER)


def name_dtype(directory: Path, model: ModelConfig) -> None:
    """Name the weights' dtype in config.json as the converter reads it.

    transformers writes it as `dtype` from 4.56 on; the converter looks for torch_dtype alone, and without it
    writes float32 (MindSpeed-LLM a2c0733b, tasks/checkpoint/models.py, get_modules_from_pretrained).
    """
    file = directory / "config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    if not values.get("torch_dtype"):
        values["torch_dtype"] = values.get("dtype") or model.torch_dtype
        file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
