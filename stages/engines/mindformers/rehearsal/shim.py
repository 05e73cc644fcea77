"""Parts of a rehearsal of mindrlhf and mindformers: code on PYTHONPATH, small sizes, checkpoints."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.engines import rehearsal
from stages.engines.mindformers import checkpoints

ON_PATH = Path(__file__).with_name("on_path")
ROW = 256
"""Tokens of the longest row of supervised training; tokenize drops longer examples."""


def environment(answers: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return engine.env of a rehearsal; `answers` is the file of known answers (on_path), if any."""
    return rehearsal.environment(ON_PATH, variables, **{rehearsal.VARIABLE: str(answers.absolute())})


def shrink(config: dict[str, Any], model: Path, script: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of supervised training, on one worker."""
    small = rehearsal.shrink(config, model, workers=1)
    settings = small["mindformers"]
    settings["env"] = environment(script, settings["env"])
    settings["batch_size"] = min(settings["batch_size"], 2 * settings["examples_per_card"])
    settings |= {"epochs": 1, "checkpoint_every": 1}
    small["tokenize"]["sft_length"] = min(small["tokenize"]["sft_length"], ROW)
    small["dataset"]["train_rows"] = rehearsal.STEPS * settings["batch_size"]
    return small


def newest_checkpoint(root: Path, workers: int, parts: Sequence[str]) -> list[int] | None:
    """Return epoch and step of the newest complete checkpoint."""
    moment = checkpoints.newest(root, workers, parts)
    return None if moment is None else list(moment)
