"""Parts of a rehearsal of mindrlhf and mindformers: small sizes, code on PYTHONPATH, known answers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines import rehearsal

ON_PATH = Path(__file__).with_name("on_path")
ROW = 256
"""Tokens of the longest row of supervised training; tokenize drops longer examples."""


def environment(answers: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return engine.env of a rehearsal; `answers` is the file of known answers (on_path), if there are any.

    If Python must not write bytecode, each of many processes would compile MindSpore's modules again; theirs
    goes next to `answers`.
    """
    added = {rehearsal.VARIABLE: str(answers.absolute())}
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        cache = answers.absolute().parent / "pyc"
        added |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache)}
    return rehearsal.environment(ON_PATH, variables, **added)


def shrink(config: dict[str, Any], model: Path, script: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of supervised training, on one worker."""
    small = rehearsal.shrink(config, model, workers=1)
    settings = small["mindformers"]
    settings["env"] = environment(script, settings["env"])
    rehearsal.keep_existing_scripts(settings)
    settings["batch_size"] = min(settings["batch_size"], 2 * settings["examples_per_card"])
    settings |= {"epochs": 1, "checkpoint_every": 1}
    small["tokenize"]["sft_length"] = min(small["tokenize"]["sft_length"], ROW)
    small["dataset"]["train_rows"] = rehearsal.STEPS * settings["batch_size"]
    return small
