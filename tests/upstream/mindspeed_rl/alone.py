"""One stage around an upstream program, on given inputs and without a store."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from launch.nodes.run import write
from pipeline.config.sections import Config
from stages.base.context import Context

TIMEOUT_S = 560


def run(stage: ModuleType, config: Config, inputs: Mapping[str, Path], root: Path) -> Path:
    """Prepare, run the start script as a user would by hand, collect; returns the artifact."""
    work, output = root / "work", root / "output"
    work.mkdir(parents=True)
    output.mkdir()
    context = Context("alone", config.plain(), dict(inputs), output, work, work / "progress.jsonl")
    stage.prepare(context)
    start = stage.render(context.config, context.inputs, work).start
    (script,) = write(start, config.launcher, root / "launch", root / "logs")
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    stage.collect(context)
    return output
