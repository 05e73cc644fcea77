"""The recipe of a rehearsal of run_mindformer.py: sizes become small, and nothing else changes."""

from pathlib import Path
from typing import Any

from stages.engines import rehearsal
from stages.engines.mindformers.rehearsal import shim

ROW = 256
"""Tokens of the longest row; tokenize drops longer examples."""


def shrink(config: dict[str, Any], model: Path, script: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of a plain configuration, on one worker."""
    small = rehearsal.shrink(config, model, workers=1)
    settings = small["mindformers"]
    settings["env"] = shim.environment(script, settings["env"])
    rehearsal.keep_existing_scripts(settings)
    settings["batch_size"] = min(settings["batch_size"], 2 * settings["examples_per_card"])
    settings |= {"epochs": 1, "checkpoint_every": 1}
    small["tokenize"]["sft_length"] = min(small["tokenize"]["sft_length"], ROW)
    small["dataset"]["train_rows"] = rehearsal.STEPS * settings["batch_size"]
    return small
