"""MindSpeed-RL's code on a CPU: variables that hide an NPU's packages, and validation by upstream."""

import json
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
    """Return upstream's verdict on the train.yaml of every directory, which must have the same options.

    Returns:
        In the order of `directories`: {"roles": {role: Megatron's arguments}} or {"error": traceback}.
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
