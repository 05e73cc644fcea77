"""Check of a rendered configuration by AReaL: `PYTHON validate.py FILE [CHECKOUT]` in AReaL's interpreter.

It builds GRPOConfig of the YAML file, which checks names, types and limits, and prints its class.
"""
# mypy: ignore-errors

import sys

sys.path[:0] = sys.argv[2:]

from areal.api.cli_args import GRPOConfig, to_structured_cfg  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

config = OmegaConf.to_object(to_structured_cfg(OmegaConf.load(sys.argv[1]), config_cls=GRPOConfig))
print(type(config).__name__, config.rollout.backend, config.actor.backend)
