"""Slurm jobs that run one stage: submit, find, follow, cancel, and say how they ended.

A job is found by its name, which follows from the artifact, so that a new process can follow the job of one
that was killed. sbatch is called directly, and not through submitit, which passes the function to call and
its result as pickle files: nothing in a store is a pickle, and the store's artifact is a job's only result.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.config import LauncherConfig
from launch.errors import LaunchError
from launch.nodes.stage_queue import Ending, Queue, Request, Status, Unanswered

INSIDE = "GRPOFLOW_STAGE_JOB"
"""Environment variable with the id of the job of a stage, whose nodes its program uses."""
ANSWER_S = 60.0
"""Time limit of one call of Slurm's programs."""
ENDING = frozenset({"COMPLETING", "STAGE_OUT"})
"""States of a job whose processes are being ended; it may be queued again afterwards."""
SCRIPT = "job.sbatch"
"""Name of a job's batch script."""


class SlurmQueue(Queue):
    """Slurm's queue: jobs of the same name, which keep their id when Slurm queues them again."""

    cluster = "Slurm"
    lost_by = "a crash of its controller"

    def log(self, number: str) -> Path:
        """Return the file that `script` names."""
        return self.logs / f"slurm-{number}.log"

    def submit(self, request: Request) -> str:
        """Write job.sbatch and submit it."""
        text = script(request, name=self.name, logs=self.logs, launcher=self.launcher)
        file = self.logs / SCRIPT
        file.write_text(text, encoding="utf-8")
        return submit(file, self.name, request.environment)

    def find(self) -> Status | None:
        """Ask squeue."""
        return find(self.name)

    def look(self, status: Status) -> Status | None:
        """Ask squeue for the name: the oldest job of several goes on."""
        return find(self.name)

    def cancel(self, status: Status) -> None:
        """Cancel all jobs of the name."""
        cancel(self.name)

    def ending(self, number: str) -> Ending | None:
        """Ask scontrol, and sacct if Slurm has forgotten the job and there is an accounting."""
        how = ending(number, self.name)
        if how is None:
            return None
        return Ending(how, how.startswith("COMPLETED"), may_pass=not how.startswith("CANCELLED"))


def script(request: Request, *, name: str, logs: Path, launcher: LauncherConfig) -> str:
    """Return a batch script that runs a command on the first of its nodes.

    Slurm queues the job again after preemption or a lost node; the command must resume then. It gets SIGUSR1
    launcher.notice_s seconds before the time limit.
    """
    options = [
        f"--job-name={name}",
        f"--nodes={request.nodes}",
        "--ntasks-per-node=1",
        "--requeue",
        "--open-mode=append",
        f"--chdir={request.directory}",
        f"--output={logs}/slurm-%j.log",
        *([f"--signal=B:USR1@{launcher.notice_s}"] if launcher.notice_s else []),
        *launcher.sbatch,
        *launcher.slurm.get(request.stage, ()),
    ]
    lines = ["#!/usr/bin/env bash", *[f"#SBATCH {shlex.quote(option)}" for option in options]]
    # srun no longer takes over --cpus-per-task of the batch script
    lines.append('[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"')
    lines.append(f"export {INSIDE}=$SLURM_JOB_ID")
    return "\n".join([*lines, f"exec {shlex.join(request.command)}"]) + "\n"


def is_inside(environment: Mapping[str, str]) -> bool:
    """Return True in the job of a stage; not in a job that a user has submitted by hand."""
    return INSIDE in environment and environment[INSIDE] == environment.get("SLURM_JOB_ID")


def submit(file: Path, name: str, environment: Mapping[str, str]) -> str:
    """Submit a batch script; return the job's id.

    Raises:
        Unanswered: the controller does not answer; the job may be in the queue nevertheless.
        LaunchError: Slurm refuses the job.
    """
    # SBATCH_JOB_NAME would count more than the script
    line = ["sbatch", "--parsable", f"--job-name={name}", str(file)]
    done = _call(line, environment)
    if done.returncode != 0:
        reason = " ".join(done.stderr.split())
        if re.search(r"[Uu]nable to contact|Connection|timed out|not responding|try again", reason):
            raise Unanswered(f"sbatch: {reason}")
        raise LaunchError(f"{file}: Slurm refuses it: {reason}; correct launcher.sbatch or launcher.slurm")
    return done.stdout.strip().partition(";")[0]


def find(name: str) -> Status | None:
    """Return this user's job of a name that was submitted first and has not ended; None if there is none.

    Raises:
        Unanswered: the controller does not answer.
    """
    done = _call(["squeue", "-h", "-o", "%i|%T|%r|%N", "-u", _user(), "-n", name])
    if done.returncode != 0:
        raise Unanswered(f"squeue: {' '.join(done.stderr.split())}")
    jobs = []
    for line in done.stdout.splitlines():
        number, state, reason, nodes = (*line.split("|"), "", "", "")[:4]
        why = nodes if state == "RUNNING" else reason.replace("None", "")
        jobs.append(Status(SlurmQueue.cluster, number, state, why, is_ending=state in ENDING))
    return min(jobs, key=lambda job: int(re.sub(r"\D.*", "", job.id) or 0), default=None)


def cancel(name: str) -> None:
    """Cancel this user's jobs of a name; Slurm sends them SIGTERM, and later SIGKILL."""
    _call(["scancel", "-u", _user(), "-n", name])


def queue_again(number: str) -> None:
    """Put a running job back into the queue, which ends its processes; raise LaunchError if that fails."""
    done = _call(["scontrol", "requeue", number])
    if done.returncode != 0:
        raise LaunchError(f"scontrol requeue {number}: {' '.join(done.stderr.split())}")


def ending(number: str, name: str) -> str | None:
    """Return how a job ended: state, exit code, node and reason.

    Return None if Slurm does not know it: it ended long ago, or the controller was killed soon after it had
    accepted the job, and has lost it. Then the number may belong to another job, which has another name.

    Raises:
        Unanswered: the controller does not answer.
    """
    done = _call(["scontrol", "show", "job", "-o", number])
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise Unanswered(f"scontrol: {' '.join(done.stderr.split())}")
    pairs = (word.partition("=") for word in done.stdout.split())
    shown = {key: value for key, equals, value in pairs if equals}
    values = [shown.get(key, "") for key in ("JobName", "JobState", "ExitCode", "NodeList", "Reason")]
    if values[0] != name:  # forgotten after MinJobAge; the accounting remembers, where there is one
        line = ["sacct", "-n", "-P", "-X", "-j", number, "-o", "JobName,State,ExitCode,NodeList,Reason"]
        fields = [""]
        with contextlib.suppress(Unanswered):
            fields = _call(line).stdout.strip().splitlines()[-1:] or fields
        values = [*fields[0].split("|"), "", "", "", "", ""]
    known, state, code, nodes, reason = values[:5]
    if known != name:
        return None
    details = [f"exit code {code.partition(':')[0]}"] if code not in ("", "0:0") else []
    signal = code.partition(":")[2]
    details += [f"signal {signal}"] if signal not in ("", "0") else []
    details += [nodes] if nodes not in ("", "(null)", "None assigned") else []
    details += [reason] if reason not in ("", "None") else []
    return state + (f" ({', '.join(details)})" if details else "")


def _user() -> str:
    """Return the name of this process's user, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _call(line: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's programs.

    Raises:
        Unanswered: it does not end.
        LaunchError: it is not installed.
    """
    try:
        return subprocess.run(
            line, capture_output=True, text=True, errors="replace", timeout=ANSWER_S, env=env
        )
    except subprocess.TimeoutExpired as error:
        raise Unanswered(f"{line[0]}: no answer after {ANSWER_S:.0f} s") from error
    except OSError as error:
        if line[0] == "sacct":  # not every cluster has the accounting
            return subprocess.CompletedProcess(line, 1, "", "")
        raise LaunchError(f"{line[0]}: {error.strerror}; launcher=slurm needs Slurm here") from error
