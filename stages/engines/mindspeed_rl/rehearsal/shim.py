"""What a rehearsal adds to the processes of MindSpeed-RL: a directory on PYTHONPATH and variables."""

from collections.abc import Mapping
from pathlib import Path

from stages.engines import rehearsal

ON_PATH = Path(__file__).with_name("on_path")
ENGINE = "mindspeed_rl"
"""Value of the variable without which nothing in ON_PATH has an effect."""


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return engine.env of a rehearsal, from the recipe's engine.env."""
    added = {
        rehearsal.VARIABLE: ENGINE,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # an installed torch_npu would be loaded by torch itself
    }
    return rehearsal.environment(ON_PATH, variables, **added)
