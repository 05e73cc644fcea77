"""Starts validate.py in the engine's interpreter, and reads what it says."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.engines.mindspeed_rl.rehearsal.shim import environment

PROGRAM = Path(__file__).with_name("validate.py")
TIMEOUT_S = 1800.0
_LAST = 3
"""Lines of a program's end that are told."""


def validate(
    python: str | Path,
    home: Path,
    directories: Sequence[Path],
    nodes: int,
    variables: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return upstream's verdict on the train.yaml of every directory.

    Returns:
        Directory -> {"roles": {role: Megatron's arguments}} or {"error": traceback}.
    """
    added = environment(variables or {})
    path = os.pathsep.join([str(home), added["PYTHONPATH"]])
    request = json.dumps(
        {"home": str(home), "directories": [str(directory) for directory in directories], "nodes": nodes}
    )
    done = subprocess.run(
        [str(python), str(PROGRAM)],
        input=request,
        env={**_clean(os.environ), **added, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    answers = {answer.pop("directory"): answer for answer in map(json.loads, done.stdout.splitlines())}
    end = "\n".join(done.stderr.strip().splitlines()[-_LAST:])
    silent = {"error": f"{PROGRAM.name} ended with exit code {done.returncode}\n{end}"}
    return {str(directory): answers.get(str(directory), silent) for directory in directories}


def _clean(variables: Mapping[str, str]) -> dict[str, str]:
    """Without what belongs to the interpreter that asks."""
    return {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
