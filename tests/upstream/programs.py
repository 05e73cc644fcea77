"""Programs that run in an engine's interpreter, and runs that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.processes import living, wait_until


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


def kill_when(is_due: Callable[[], bool], command: Sequence[str], store: Path) -> None:
    """Start a run; kill it and all its workers (SIGKILL) as soon as `is_due` is true."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with (store.parent / "stderr").open("w") as stderr:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, cwd=store.parent)
    wait_until(is_due, 1500, running, (store.parent / "stderr").read_text)
    running.kill()
    running.wait()
    for process in living(store):
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not living(store))
