"""What a rehearsal adds to the processes of MindSpeed-RL: a directory on PYTHONPATH and a variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

ON_PATH = Path(__file__).with_name("on_path")
VARIABLE, ENGINE = "GRPOFLOW_REHEARSAL", "mindspeed_rl"
"""Where the variable does not name the engine, nothing in ON_PATH does anything."""


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """engine.env of a rehearsal.

    Args:
        own: the recipe's engine.env.
    """
    path = [str(ON_PATH), *filter(None, [own.get("PYTHONPATH")])]
    return {
        **own,
        "PYTHONPATH": os.pathsep.join(path),
        VARIABLE: ENGINE,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # an installed torch_npu would be loaded by torch itself
    }
