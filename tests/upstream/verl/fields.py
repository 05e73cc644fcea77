"""Fields of verl's composed ppo_trainer configuration, for stages/engines/verl/fields.

`VERL_PYTHON fields.py MODEL_ENGINE` prints them as YAML (dp: FSDP, megatron: Megatron). Runs in verl's
interpreter and imports nothing of grpoflow.
"""

import contextlib
import dataclasses
import sys
from pathlib import Path

import verl
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import OmegaConf

HEADER = "# Fields and defaults of verl's ppo_trainer. Written by tests/upstream/verl/fields.py.\n"
PLAIN = (bool, int, float, str, list, type(None))


def composed(overrides):
    """Return verl's configuration as plain data, without required values that have no default."""
    directory = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(directory, version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    return OmegaConf.to_container(config, resolve=True)


def groups(values, path=""):
    """Yield path and fields of each group of keys; a class of verl may have more fields than its YAML."""
    fields = dict(values)
    if target := fields.pop("_target_", None):
        for field in dataclasses.fields(get_class(target)):
            if field.name != "_target_":
                fields.setdefault(field.name, field.default if isinstance(field.default, PLAIN) else None)
    leaves = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            yield from groups(value, f"{path}.{name}".strip("."))
        else:
            leaves[name] = None if value == "???" else value
    if leaves and path:  # the only key at the top is model_engine, which engine.strategy selects
        yield path, leaves


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        classes = {
            path or "root": leaves for path, leaves in groups(composed([f"model_engine={sys.argv[1]}"]))
        }
    sections = {path: path for path in classes}
    print(HEADER + yaml.safe_dump({"classes": classes, "sections": sections}, width=110), end="")
