"""SwanLab; SWANLAB_MODE and its other variables count. `swanlab sync DIRECTORY` uploads what was written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import swanlab

from stages.grpo.trackers import PROJECT, Tracker

SETTINGS = swanlab.Settings(
    metadata_collect=False, collect_hardware=False, collect_runtime=False, requirements_collect=False,
    hardware_monitor=False, log_proxy_type="none",
)  # fmt: skip


class Swanlab(Tracker):
    """An experiment of swanlab."""

    def __init__(self, directory: Path, name: str, config: Mapping[str, Any]) -> None:
        self._directory = directory
        mode: Any = os.environ.get("SWANLAB_MODE", "offline")
        options: dict[str, Any] = {"logdir": str(directory), "mode": mode}
        swanlab.init(PROJECT, experiment_name=name, config=dict(config), settings=SETTINGS, **options)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        swanlab.log(dict(numbers), step=step, print_to_console=False)

    def close(self) -> None:
        swanlab.finish()
        # Offline, swanlab 0.6.4 ignores its settings and writes a description of the machine.
        for name, nothing in (("swanlab-metadata.json", "{}"), ("requirements.txt", "")):
            for file in self._directory.glob(f"run-*/files/{name}"):
                file.write_text(nothing, encoding="ascii")


TRACKER = Swanlab
