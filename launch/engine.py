"""An engine's run: somebody else's program under msrun, from a start script that works without us."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from launch import process
from launch.config import LauncherConfig
from launch.errors import ProcessFailed, ProcessSilent
from launch.job import first_to_fail
from launch.process import Outcome
from launch.scripts import EngineStart, Node, write_scripts

OWN_VARIABLES = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")


def write(start: EngineStart, launcher: LauncherConfig, directory: Path, logs: Path) -> list[Path]:
    """Write one start script per node into `directory`; nothing is started."""
    return write_scripts(start, nodes_of(start.workers, launcher), directory, logs)


def nodes_of(workers: int, launcher: LauncherConfig) -> list[Node]:
    """The nodes that so many workers need, launcher.cards_per_node on each; without addresses."""
    per_node = min(workers, launcher.cards_per_node)
    count = -(-workers // per_node)
    return [Node(rank, None, min(per_node, workers - rank * per_node)) for rank in range(count)]


def run(
    start: EngineStart,
    *,
    job: str,
    directory: Path,
    logs: Path,
    launcher: LauncherConfig,
    on_poll: Callable[[], None],
    silent_s: Callable[[], float],
    silence_timeout_s: float | None,
) -> Outcome:
    """Run an engine on this machine to its end.

    Args:
        start: what to start.
        job: name of the job, see launch.process.
        directory: receives the start script.
        logs: receives msrun's worker_K.log and start.log.
        launcher: time limits and ports.
        on_poll: called ten times a second.
        silent_s: seconds since a worker last wrote a line.
        silence_timeout_s: the run is stopped as hung after so many; None: never.

    Raises:
        LaunchError: it could not start, failed, took too long or fell silent.
    """
    (script,) = write(start, launcher, directory, logs)
    log = logs / "start.log"

    def poll() -> None:
        on_poll()
        if silence_timeout_s is not None and silent_s() > silence_timeout_s:
            raise ProcessSilent(silence_timeout_s, logs)

    try:
        return process.run(
            [*start.container, "bash", str(script)],
            job=job,
            log=log,
            env=environment(os.environ),
            timeout_s=launcher.timeout_s,
            grace_s=launcher.grace_s,
            on_poll=poll,
        )
    except ProcessFailed as error:
        culprit = first_to_fail(logs)
        if culprit is None:
            raise
        raise ProcessFailed(error.exit_code, culprit, process.tail(culprit)) from error


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """`base` without grpoflow's own virtual environment: an engine needs packages of its own."""
    own = os.path.join(sys.prefix, "bin")
    path = [part for part in base.get("PATH", os.defpath).split(os.pathsep) if part != own]
    kept = {name: value for name, value in base.items() if name not in OWN_VARIABLES}
    return {**kept, "PATH": os.pathsep.join(path)}
