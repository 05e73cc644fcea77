"""What a running stage receives: its configuration, its inputs, and the directories that it may write to."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from stages.base.reader import read

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with (done, total), for example in bytes; total 0: unknown."""
WARNINGS = "warnings.txt"
"""File next to the progress file with one line per warning of the attempt."""


@dataclass(frozen=True)
class Context:
    """One run of one stage. Written as JSON by the pipeline, read by `python -m stages`."""

    stage: str
    config: Mapping[str, Any]
    """Sections of the resolved configuration that this stage reads: section name -> values."""
    inputs: Mapping[str, Path]
    """Input name -> committed artifact directory (read-only)."""
    output: Path
    """Directory that becomes the artifact; empty at the start."""
    work: Path
    """Directory for checkpoints, which the next attempt continues from; removed after a commit."""
    progress_file: Path
    """JSON lines {time_s, step, total, unit, message}, which the pipeline displays."""
    has_log: bool = False
    """True in a stage's own process, whose stdout is the log."""

    @classmethod
    def load(cls, spec: Path) -> Context:
        """Read a spec file written by the pipeline."""
        values = json.loads(spec.read_text(encoding="utf-8"))
        inputs = {name: Path(path) for name, path in values["inputs"].items()}
        output, work, progress = (Path(values[name]) for name in ("output", "work", "progress_file"))
        return cls(values["stage"], values["config"], inputs, output, work, progress, has_log=True)

    def section(self, cls: type[T], name: str) -> T:
        """Return the typed config section `name`, for example `context.section(ModelConfig, "model")`."""
        return read(cls, self.config[name], name)

    @property
    def seed(self) -> int:
        """The run's seed, for stages whose config part contains it."""
        return int(self.config["seed"])

    @property
    def device_target(self) -> str:
        """MindSpore device target of this stage; CPU for stages whose configuration does not name one."""
        return str(self.config.get("engine", {}).get("device_target", "CPU"))

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json, which the report and the next stages read."""
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        file = self.output / "result.json"
        file.write_text(text, encoding="utf-8", errors="backslashreplace")  # unpaired surrogates

    def progress(self, step: float, total: float, message: str = "", unit: str = "") -> None:
        """Append a line to the progress file and to the log; call it at most a few times a second.

        The log gets only the last report of bytes, because there are many.
        """
        with self.progress_file.open("a", encoding="utf-8") as file:
            file.write(progress_line(step, total, message, unit))
        if unit != "B" or step >= total > 0:
            self.log(f"{step:g}/{total:g} {unit}: {message}".replace(" :", ":"))

    def progress_in_bytes(self, message: str) -> Progress:
        """Return a function that reports bytes, at most twice a second and at the end."""
        reported_s = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal reported_s
            now_s = time.monotonic()
            if 0 < total <= done or now_s - reported_s >= 0.5:
                reported_s = now_s
                self.progress(done, total, message, "B")

        return progress

    def log(self, text: str) -> None:
        """Write a line with the time to the stage's log, if there is one."""
        if self.has_log:
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.stage}: {text}", flush=True)

    def warn(self, text: str) -> None:
        """Show a warning to the user at once."""
        print(f"warning: {text}", file=sys.stderr, flush=True)
        append_warning(self.progress_file.parent, text)


def append_warning(logs: Path, text: str) -> None:
    """Add a warning to those that the pipeline shows while a stage with these logs runs."""
    with (logs / WARNINGS).open("a", encoding="utf-8") as file:
        file.write(" ".join(text.split()) + "\n")


def progress_line(step: float, total: float, message: str, unit: str) -> str:
    """Return one line of a progress file."""
    line = {"time_s": time.time(), "step": step, "total": total, "unit": unit, "message": message}
    return json.dumps(line) + "\n"


def rank() -> int:
    """Return this worker's rank under msrun; 0 if the stage runs as a single process."""
    return int(os.environ.get("RANK_ID", "0")) if os.environ.get("MS_ROLE") == "MS_WORKER" else 0
