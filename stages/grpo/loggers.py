"""The numbers of metrics.jsonl for wandb and swanlab: offline unless the environment says otherwise.

Both would also record the machine, the command line, the code and what is printed; all of that is switched
off: an artifact may be given away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stages.context import Context

PROJECT = "grpoflow"
Row = Mapping[str, Any]


class Logger(Protocol):
    """What takes one row of metrics after the other."""

    def add(self, row: Row) -> None:
        """Add one step."""

    def close(self) -> None:
        """Write out what is buffered."""


class Wandb:
    """A run of wandb; WANDB_MODE, WANDB_API_KEY and its other variables count."""

    def __init__(self, scratch: Path, target: Path, name: str, config: Row) -> None:
        """Begin a run in `scratch`; `close` copies its files to `target`."""
        import wandb

        self.wandb, self.scratch, self.target = wandb, scratch / "wandb", target / "wandb"
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_meta=True,
            x_disable_stats=True, x_disable_machine_info=True, x_save_requirements=False,
        )  # fmt: skip
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(
            project=PROJECT, name=name, dir=str(scratch), mode=mode, config=dict(config), settings=settings
        )

    def add(self, row: Row) -> None:
        """Add one step."""
        self.run.log(numbers(row), step=row["step"])

    def close(self) -> None:
        """End the run; `wandb sync DIRECTORY` uploads what was written offline."""
        self.run.finish()
        self.wandb.teardown()  # only then has its writing process put everything on disk
        keep(self.scratch, self.target, ("logs", "tmp"))


class Swanlab:
    """An experiment of swanlab; SWANLAB_MODE and its other variables count."""

    def __init__(self, scratch: Path, target: Path, name: str, config: Row) -> None:
        """Begin an experiment in `scratch`; `close` copies its files to `target`."""
        import swanlab

        self.swanlab, self.scratch, self.target = swanlab, scratch / "swanlab", target / "swanlab"
        self.scratch.mkdir(parents=True)
        settings = swanlab.Settings(
            metadata_collect=False, collect_hardware=False, collect_runtime=False, requirements_collect=False,
            hardware_monitor=False, log_proxy_type="none",
        )  # fmt: skip
        mode: Any = os.environ.get("SWANLAB_MODE", "offline")
        swanlab.init(
            project=PROJECT, experiment_name=name, logdir=str(self.scratch), mode=mode, config=dict(config),
            settings=settings,
        )  # fmt: skip

    def add(self, row: Row) -> None:
        """Add one step."""
        self.swanlab.log(numbers(row), step=row["step"], print_to_console=False)

    def close(self) -> None:
        """End the experiment; `swanlab sync DIRECTORY` uploads what was written offline."""
        self.swanlab.finish()
        keep(self.scratch, self.target, ())
        # Offline, swanlab 0.6.4 forgets the settings that it was given and describes the machine after all.
        for name, nothing in (("swanlab-metadata.json", "{}"), ("requirements.txt", "")):
            for file in self.target.glob(f"run-*/files/{name}"):
                file.write_text(nothing, encoding="ascii")


def open_loggers(names: Sequence[str], context: Context, rows: Iterable[Row]) -> list[Logger]:
    """Loggers by the names of train.loggers, given the rows of earlier attempts first."""
    scratch = context.work / "loggers"
    shutil.rmtree(scratch, ignore_errors=True)  # a killed attempt's; its rows are logged again
    scratch.mkdir(parents=True)
    kinds: dict[str, type[Wandb] | type[Swanlab]] = {"wandb": Wandb, "swanlab": Swanlab}
    name = context.work.name
    loggers: list[Logger] = [kinds[one](scratch, context.output, name, context.config) for one in names]
    for row in rows:
        for logger in loggers:
            logger.add(row)
    return loggers


def numbers(row: Row) -> dict[str, Any]:
    """A row without what the loggers count themselves."""
    return {name: value for name, value in row.items() if name not in ("step", "time_s")}


def keep(source: Path, target: Path, left_out: Sequence[str]) -> None:
    """Copy a directory without what is named so, and without links, which point to where it was."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name in left_out or (Path(folder) / name).is_symlink()]

    shutil.copytree(source, target, ignore=ignored)
