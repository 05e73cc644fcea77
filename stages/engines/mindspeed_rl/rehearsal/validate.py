"""Validation of rendered configurations by MindSpeed-RL's own code: `python validate.py NODES DIRECTORY…`.

Runs in the engine's interpreter with the checkout, its cli/ and on_path on PYTHONPATH; imports nothing of
grpoflow. For each DIRECTORY/train.yaml: Hydra's composition, train_grpo.py's parse_training_config (with
validate_rl_args), and for each role its initialize_megatron until Megatron's validate_args has returned.
Prints one JSON line per configuration on stdout; output of upstream goes to stderr.

Two things differ from a run: `ai_framework` is removed from Megatron's part, because the patches of the
MindSpore back end need MSAdapter, and the number of Ray nodes is given. MindSpeed patches Megatron according
to the options that it meets first, so all configurations of one process must have the same options (their
values may differ, and so may load and resume options).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

ROLES = {"actor": "actor_resource", "ref": "reference_resource", "reward": "reward_resource"}
REPORTED = (
    "world_size", "data_parallel_size", "num_layers", "seq_length", "tensor_model_parallel_size",
    "pipeline_model_parallel_size", "context_parallel_size", "padded_vocab_size", "num_query_groups",
    "sequence_parallel", "use_distributed_optimizer", "recompute_granularity",
)  # fmt: skip
"""Megatron's arguments that are reported after validation."""


class Validated(Exception):
    """Signal that Megatron accepted its arguments, which it carries."""


def main(nodes: str, *directories: str) -> None:
    """Validate the train.yaml of every directory."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    program = importlib.import_module("train_grpo")
    validators: Any = sys.modules["mindspeed_rl.config_cls.validate_config"]
    if hasattr(validators, "get_node_nums"):
        validators.get_node_nums = lambda: int(nodes)
    for directory in directories:
        result: dict[str, Any]
        try:
            result = {"roles": _validate(program, directory)}
        except BaseException:  # argparse raises SystemExit
            result = {"error": traceback.format_exc()}
        print(json.dumps(result), file=results, flush=True)


def _validate(program: Any, directory: str) -> dict[str, Any]:
    """Return Megatron's arguments for each role."""
    hydra: Any = importlib.import_module("hydra")
    with hydra.initialize_config_dir(directory, version_base=None):
        config = hydra.compose("train")
    parsed = program.parse_training_config(config)
    _require_known(config, parsed)
    roles = {}
    for role, resource in ROLES.items():
        megatron, cards = parsed[f"{role}_config"], getattr(parsed["rl_config"], resource)
        if cards is not None and (role == "actor" or megatron is not parsed["actor_config"]):
            roles[role] = _initialize(program, megatron, cards.num_npus)
    return roles


def _require_known(config: Any, parsed: Any) -> None:
    """Refuse unknown keys, for which the older version's base_config.py only prints a warning."""
    shape = config["model"][config["megatron_training"]["model"]]
    sections = {"actor_config": {**shape, **config["megatron_training"], **config["actor_config"]}}
    sections |= {name: dict(config[name]) for name in ("rl_config", "generate_config")}
    unknown = [
        f"{section}.{key}"
        for section, keys in sections.items()
        for key in keys
        if key != "model" and not hasattr(parsed[section], str(key).replace("-", "_"))
    ]
    if unknown:
        raise ValueError(f"unknown keys, which this version skips with a warning: {', '.join(unknown)}")


def _initialize(program: Any, config: Any, cards: int) -> dict[str, Any]:
    """Run initialize_megatron as the first worker does, until its arguments are validated."""
    os.environ.update(RANK="0", WORLD_SIZE=str(cards), LOCAL_RANK="0", LOCAL_WORLD_SIZE=str(cards))
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    config.ai_framework = None
    arguments, torch = sys.argv, importlib.import_module("torch")
    torch.cuda.is_available = _stop_after_validation
    try:
        program.initialize_megatron(config=config)
    except Validated as validated:
        (accepted,) = validated.args
        return {name: getattr(accepted, name, None) for name in REPORTED}
    finally:
        sys.argv = arguments
    raise AssertionError("initialize_megatron did not call set_global_variables")


def _stop_after_validation() -> bool:
    """Replace set_global_variables, which follows validate_args, and return that there is a device.

    initialize_megatron asks for a device after MindSpeed has patched and imported Megatron, and before it
    validates: importing Megatron earlier would leave it without patches.
    """

    def stop(accepted: Any, *remaining: Any, **options: Any) -> None:
        raise Validated(accepted)

    if global_vars := sys.modules.get("megatron.training.global_vars"):
        global_vars.set_global_variables = stop  # type: ignore[attr-defined]
    return True


if __name__ == "__main__":
    sys.path.pop(0)  # this directory is not for upstream's imports
    main(*sys.argv[1:])
