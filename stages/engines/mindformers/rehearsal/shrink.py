"""The recipe of a rehearsal of run_mindformer.py: sizes become small, and nothing else changes."""

import copy
from pathlib import Path
from typing import Any

from stages.engines.mindformers.rehearsal import shim
from stages.engines.rehearsal import complete_layout, keep_existing_scripts

KILLED_AFTER, STEPS = 1, 2
"""Step whose checkpoint is complete when the run is killed, and all steps."""
HIDDEN, LAYERS, HEADS, WIDE = 16, 2, 2, 32
ROW = 256
"""Tokens of the longest row; tokenize drops longer examples."""


def shrink(config: dict[str, Any], model: Path, script: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of a plain configuration, on one worker."""
    small = copy.deepcopy(config)
    small["model"] |= small_shape(config["model"], str(model))
    small["layout"] = complete_layout(config["layout"], workers=1)
    small["cards"] = 1
    settings = small["mindformers"]
    settings["env"] = shim.environment(script, settings["env"])
    keep_existing_scripts(settings)
    settings["batch_size"] = min(settings["batch_size"], 2 * settings["examples_per_card"])
    settings |= {"epochs": 1, "checkpoint_every": 1}
    small["tokenize"]["sft_length"] = min(small["tokenize"]["sft_length"], ROW)
    small["dataset"] |= {"train_rows": STEPS * settings["batch_size"], "test_rows": 1}
    return small


def small_shape(model: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the keys of the model section that a small model changes; grouped heads stay grouped."""
    grouped = model["num_key_value_heads"] < model["num_attention_heads"]
    return {
        "source": "local",
        "path": path,
        "tokenizer_path": None,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2 if grouped else HEADS,
        "intermediate_size": WIDE,
    }
