"""Jobs: a Python program as a single process, or as several workers under msrun."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from launch.config import LauncherConfig
from launch.diagnose.diagnosis import diagnose
from launch.errors import ProcessFailed
from launch.process import child, msrun
from launch.process.child import Outcome


def run(
    program: Sequence[str],
    *,
    workers: int,
    job: str,
    log_dir: Path,
    launcher: LauncherConfig,
    env: Mapping[str, str] | None = None,
    on_poll: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run `python PROGRAM` to its end: directly for one worker, under msrun for several.

    Args:
        program: arguments of the interpreter, for example ["-m", "stages", "grpo", "spec.json"].
        workers: number of processes; msrun gives each its rank.
        job: name of the job, see launch.process.child.
        log_dir: receives stage.log and, with several workers, scheduler.log and worker_K.log.
        launcher: addresses, ports and time limits.
        env: variables added to this process's environment.
        on_poll: called ten times a second.

    Raises:
        LaunchError: the job could not start, failed, or took too long.
    """
    try:
        return child.run(
            msrun.describe(program, workers=workers, log_dir=log_dir, launcher=launcher),
            job=job,
            log=log_dir / "stage.log",
            env=msrun.environment(Path(sys.executable), {**os.environ, **(env or {})}),
            timeout_s=launcher.timeout_s,
            grace_s=launcher.grace_s,
            on_poll=on_poll,
        )
    except ProcessFailed as error:
        culprit = diagnose(log_dir).culprit if workers > 1 else None
        if culprit is None:
            raise
        raise ProcessFailed(error.exit_code, culprit, child.tail(culprit)) from error
