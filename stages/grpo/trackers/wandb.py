"""Weights & Biases; WANDB_MODE, WANDB_API_KEY and its other variables count.

`wandb sync DIRECTORY` uploads what was written offline.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from stages.grpo.trackers import PROJECT, Tracker

SETTINGS = wandb.Settings(
    console="off", silent=True, disable_git=True, disable_code=True, x_disable_meta=True,
    x_disable_stats=True, x_disable_machine_info=True, x_save_requirements=False,
)  # fmt: skip


class Wandb(Tracker):
    """A run of wandb, whose directory must be named wandb."""

    left_out = ("logs", "tmp")

    def __init__(self, directory: Path, name: str, config: Mapping[str, Any]) -> None:
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        options: dict[str, Any] = {"dir": str(directory.parent), "mode": mode, "config": dict(config)}
        self._run = wandb.init(project=PROJECT, name=name, settings=SETTINGS, **options)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()
        wandb.teardown()  # only then has its writing process put everything on disk


TRACKER = Wandb
