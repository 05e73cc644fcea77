"""MindSpeed-RL on a CPU: a small model, variables that hide an NPU's packages, and validation by upstream."""

import json
import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.engines import rehearsal

ON_PATH = Path(__file__).with_name("on_path")
"""Directory on PYTHONPATH of a rehearsal's processes."""
PROGRAM = Path(__file__).with_name("validate.py")
TIMEOUT_S = 1800.0
ROWS = 2000
"""Rows of the user's training data that preprocess_data.py reads."""
_HEAD_SIZE, _INTERMEDIATE_SIZE = 8, 16
"""Hidden size of a head; least intermediate size of a tensor-parallel part."""


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return engine.env of a rehearsal, made from the recipe's engine.env."""
    added = {
        rehearsal.VARIABLE: "mindspeed_rl",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # torch itself would load an installed torch_npu
    }
    return rehearsal.environment(ON_PATH, variables, **added)


def validate(
    python: Path, home: Path, directories: Sequence[Path], nodes: int, variables: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return upstream's verdicts on the train.yaml of all directories, which must have the same options.

    A verdict is {"roles": {role: Megatron's arguments}} or {"error": traceback}.
    """
    added = environment(variables)
    added["PYTHONPATH"] = os.pathsep.join([str(home), str(home / "cli"), added["PYTHONPATH"]])
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    command = [str(python), str(PROGRAM), str(nodes), *map(str, directories)]
    done = subprocess.run(
        command, env={**inherited, **added}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    last_lines = "\n".join(done.stderr.strip().splitlines()[-3:])
    failed = {"error": f"{PROGRAM.name} ended with exit code {done.returncode}\n{last_lines}"}
    return results + [failed] * (len(directories) - len(results))


def shrink(config: Mapping[str, Any], model: Path) -> dict[str, Any]:
    """Return the plain configuration for conversion and preprocessing: layout, template and batches stay."""
    small = rehearsal.shrink(config, model, workers=1)
    small |= {"layout": config["layout"], "cards": config["cards"]}
    small["model"] |= _smallest_shape(config["model"], config["layout"]["train"])
    engine = small["engine"]
    engine |= {"env": environment(engine["env"]), "container": (), "sft": "off"}
    small["dataset"]["train_rows"] = min(config["dataset"]["train_rows"] or ROWS, ROWS)
    return small


def _smallest_shape(model: Mapping[str, Any], train: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest shape that the layout shards like the run's: heads per part, layers per stage."""
    heads, groups = model["num_attention_heads"], model["num_key_value_heads"]
    parts = train["model_parallel"]
    kv_heads = math.lcm(parts, 2) if groups > 1 else 1
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
