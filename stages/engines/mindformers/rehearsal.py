"""run_mindformer.py's recipe, small; what stands in for a card is mindrlhf's shim."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from stages.engines.mindrlhf.rehearsal import shim
from stages.engines.mindrlhf.rehearsal.shrink import STEPS, small_shape, whole_layout

ROW = 256
"""Longest row; longer examples are left out, as tokenize does."""


def shrink(config: dict[str, Any], model: Path, script: Path) -> dict[str, Any]:
    """The plain configuration of the rehearsal of a plain configuration, on one worker.

    Args:
        config: the run's, whole.
        model: directory of the small model.
        script: what the processes' variable names; see shim.write_script.
    """
    small = copy.deepcopy(config)
    small["model"] |= small_shape(config["model"], str(model))
    small["layout"] = whole_layout(config["layout"], workers=1)
    small["cards"] = 1
    settings = small["mindformers"]
    settings["env"] = shim.environment(script, settings["env"])
    settings["env_scripts"] = tuple(file for file in settings["env_scripts"] if Path(file).exists())
    settings["batch_size"] = min(settings["batch_size"], 2 * settings["examples_per_card"])
    settings |= {"epochs": 1, "checkpoint_every": 1}
    small["tokenize"]["sft_length"] = min(small["tokenize"]["sft_length"], ROW)
    small["dataset"] |= {"train_rows": STEPS * settings["batch_size"], "test_rows": 1}
    return small
