"""The same recipe with a small model: layout, template and batches stay."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines import rehearsal
from stages.engines.mindspeed_rl.rehearsal.cpu import environment

ROWS = 2000
"""Rows of the user's training data that preprocess_data.py reads."""
_HEAD_SIZE, _INTERMEDIATE_SIZE = 8, 16
"""Hidden size of a head; least intermediate size of a tensor-parallel part."""


def shrink(config: Mapping[str, Any], model: Path) -> dict[str, Any]:
    """Return the plain configuration for conversion and preprocessing."""
    small = rehearsal.shrink(config, model, workers=1)
    small |= {"layout": config["layout"], "cards": config["cards"]}
    small["model"] |= _smallest_shape(config["model"], config["layout"]["train"])
    engine = small["engine"]
    rehearsal.keep_existing_scripts(engine)
    engine |= {"env": environment(engine["env"]), "container": (), "sft": "off"}
    small["dataset"]["train_rows"] = min(config["dataset"]["train_rows"] or ROWS, ROWS)
    return small


def _smallest_shape(model: Mapping[str, Any], train: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest shape that the layout shards like the run's: heads per part, layers per stage."""
    heads, groups = model["num_attention_heads"], model["num_key_value_heads"]
    parts = train["model_parallel"] * train["context_parallel"]
    kv_heads = math.lcm(train["model_parallel"], 2) if groups > 1 else 1
    few = math.lcm(kv_heads, parts) * (2 if groups < heads else 1)
    offsets = tuple(train["offset"]) or (0,)
    layers_per_stage = max(2, 1 - min(offsets))
    return {
        "num_attention_heads": few,
        "num_key_value_heads": kv_heads if groups < heads else few,
        "hidden_size": few * _HEAD_SIZE,
        "intermediate_size": math.lcm(_INTERMEDIATE_SIZE, train["model_parallel"]) * 2,
        "num_hidden_layers": train["pipeline_stage"] * layers_per_stage + sum(offsets),
    }


def on_single_card(small: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of train_grpo.py for this machine: every role on one card."""
    unset = ("reference_npus", "reward_npus", "reward_load", "ray_address", "ray_dashboard_port")
    engine = {
        **small["engine"],
        **dict.fromkeys(unset),
        "ray_options": ("--num-cpus=8", "--object-store-memory=80000000", "--include-dashboard=false"),
        "cpus_per_npu": 1,
    }
    return {
        **small,
        "layout": rehearsal.complete_layout(small["layout"], workers=1),
        "cards": 1,
        "engine": engine,
    }
