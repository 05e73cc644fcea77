"""SwanLab, offline unless SWANLAB_MODE says otherwise; `swanlab sync DIRECTORY` uploads the files."""

import os
from collections.abc import Mapping
from typing import Any

import swanlab

from stages.grpo.trackers import PROJECT, Tracker, numbers

SETTINGS = swanlab.Settings(
    metadata_collect=False, collect_hardware=False, collect_runtime=False, requirements_collect=False,
    hardware_monitor=False, log_proxy_type="none",
)  # fmt: skip


class Swanlab(Tracker):
    """An experiment of swanlab."""

    def start(self) -> None:
        mode: Any = os.environ.get("SWANLAB_MODE", "offline")
        options: dict[str, Any] = {"logdir": str(self.directory), "mode": mode, "config": self.config}
        swanlab.init(PROJECT, experiment_name=self.name, settings=SETTINGS, **options)

    def add(self, row: Mapping[str, Any]) -> None:
        swanlab.log(numbers(row), step=row["step"], print_to_console=False)

    def close(self) -> None:
        swanlab.finish()
        # Offline, swanlab 0.6.4 ignores its settings and writes a description of the machine.
        for name, nothing in (("swanlab-metadata.json", "{}"), ("requirements.txt", "")):
            for file in self.directory.glob(f"run-*/files/{name}"):
                file.write_text(nothing, encoding="ascii")


TRACKER = Swanlab
