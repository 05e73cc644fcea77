"""Weights & Biases, offline unless WANDB_MODE says otherwise; `wandb sync DIRECTORY` uploads the files."""

import os
from collections.abc import Mapping
from typing import Any

import wandb

from stages.grpo.trackers import PROJECT, Tracker, numbers

SETTINGS = wandb.Settings(
    console="off", silent=True, disable_git=True, disable_code=True, x_disable_meta=True,
    x_disable_stats=True, x_disable_machine_info=True, x_save_requirements=False,
)  # fmt: skip


class Wandb(Tracker):
    """A run of wandb, whose directory must be named wandb."""

    left_out = ("logs", "tmp")

    def start(self) -> None:
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        options: dict[str, Any] = {"dir": str(self.directory.parent), "mode": mode, "config": self.config}
        self._run = wandb.init(project=PROJECT, name=self.name, settings=SETTINGS, **options)

    def add(self, row: Mapping[str, Any]) -> None:
        self._run.log(numbers(row), step=row["step"])

    def close(self) -> None:
        self._run.finish()
        wandb.teardown()  # only then has its writing process put everything on disk


TRACKER = Wandb
