"""The same recipe, small: the model and what follows from its size; layout, template and batches stay."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.engines.mindspeed_rl.rehearsal import shim
from stages.engines.rehearsal import complete_layout, keep_existing_scripts

ROWS, HELD_OUT = 2000, 4
"""Rows of the user's training data that preprocess_data.py reads, and of the held-out ones."""
_PER_HEAD, _WIDE = 8, 16
"""Hidden size per head; intermediate size per tensor-parallel part."""


def shrink(config: Mapping[str, Any], model: Path) -> dict[str, Any]:
    """Return the plain configuration for conversion and preprocessing."""
    small = copy.deepcopy(dict(config))
    small["model"] |= shape(config["model"], config["layout"]["train"]) | {
        "source": "local",
        "path": str(model),
        "tokenizer_path": None,
    }
    engine = small["engine"]
    engine["env"] = shim.environment(engine["env"])
    keep_existing_scripts(engine)
    engine |= {"container": (), "sft": "off"}
    rows = small["dataset"]["train_rows"]
    small["dataset"] |= {"train_rows": min(rows or ROWS, ROWS), "test_rows": HELD_OUT}
    small["evaluate"] |= {"num_prompts": HELD_OUT, "sample_prompts": 0}
    return small


def shape(model: Mapping[str, Any], train: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest shape that the layout shards like the run's: heads per part, layers per stage."""
    heads, groups = model["num_attention_heads"], model["num_key_value_heads"]
    parts = train["model_parallel"] * train["context_parallel"]
    kv_heads = math.lcm(train["model_parallel"], 2) if groups > 1 else 1
    few = math.lcm(kv_heads, parts) * (2 if groups < heads else 1)
    stages, offsets = train["pipeline_stage"], tuple(train["offset"]) or (0,)
    share = max(2, 1 - min(offsets))
    return {
        "num_attention_heads": few,
        "num_key_value_heads": kv_heads if groups < heads else few,
        "hidden_size": few * _PER_HEAD,
        "intermediate_size": math.lcm(_WIDE, train["model_parallel"]) * 2,
        "num_hidden_layers": stages * share + sum(offsets),
    }


def on_single_card(small: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of train_grpo.py for this machine: every role on one card."""
    config = copy.deepcopy(dict(small))
    config["layout"] = complete_layout(small["layout"], workers=1)
    config["cards"] = 1
    more = ("--num-cpus=8", "--object-store-memory=80000000", "--include-dashboard=false")
    config["engine"] |= {
        "reference_npus": None,
        "reward_npus": None,
        "reward_load": None,
        "ray_address": None,
        "ray_dashboard_port": None,
        "ray_options": more,
        "cpus_per_npu": 1,
    }
    return config
