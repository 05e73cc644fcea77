"""Programs of these tests that run in an engine's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run(
    python: Path | str,
    program: Path,
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    cwd: Path | None = None,
    timeout_s: float = 800,
) -> list[str]:
    """Run a program without this interpreter's variables; return the lines that it prints."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), str(program), *map(str, arguments)],
        env={**inherited, **(env or {})},
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def ask(
    python: Path, program: Path, request: object, *arguments: object, env: Mapping[str, str] | None = None
) -> Any:
    """Run a program with a JSON request on stdin; return the JSON value of its last line."""
    return json.loads(run(python, program, *arguments, env=env, stdin=json.dumps(request))[-1])
