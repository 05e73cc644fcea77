"""Keys of verl's ppo_trainer configuration: `PYTHON schema.py MODEL_ENGINE` in verl's interpreter.

It prints {"defaults": {KEY: DEFAULT}, "open": [GROUP]} as JSON (stages/engines/upstream_keys.py).
MODEL_ENGINE is verl's: dp for FSDP, megatron for Megatron. A class of verl may have more fields than its
YAML; both are listed.
"""
# mypy: ignore-errors

import contextlib
import dataclasses
import json
import sys
from pathlib import Path

import verl
from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import OmegaConf

PLAIN = (bool, int, float, str, list, type(None))
OPEN = ("ray_kwargs.ray_init",)
"""Groups that take more keys than verl lists: arguments of ray.init, which refuses unknown ones itself."""


def leaves(values, path=""):
    """Yield dotted key and default of all keys below a group."""
    fields = dict(values)
    if target := fields.pop("_target_", None):
        for field in dataclasses.fields(get_class(target)):
            if field.name != "_target_":
                fields.setdefault(field.name, field.default if isinstance(field.default, PLAIN) else None)
    for name, value in fields.items():
        below = f"{path}.{name}" if path else name
        if isinstance(value, dict) and value:
            yield from leaves(value, below)
        else:
            yield below, None if value == "???" else value


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        directory = str(Path(verl.__file__).parent / "trainer" / "config")
        with initialize_config_dir(directory, version_base=None):
            config = compose("ppo_trainer", overrides=[f"model_engine={sys.argv[1]}"])
        defaults = dict(leaves(OmegaConf.to_container(config, resolve=True)))
    defaults.pop("model_engine", None)  # engine.strategy selects it
    print(json.dumps({"defaults": defaults, "open": OPEN}))
