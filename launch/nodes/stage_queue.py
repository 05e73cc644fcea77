"""Queue of a cluster with the jobs that build one artifact, as pipeline/run/stage_job.py uses it.

A job is found by a name that follows from the artifact, so that a new process can follow the job of one that
was killed, and submits nothing twice. slurm_job.py and ray_job.py implement it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from launch.config import LauncherConfig
from launch.errors import LaunchError


class Unanswered(LaunchError):
    """The cluster's controller does not answer, so it is not known which jobs there are."""


@dataclass(frozen=True)
class Status:
    """A job that has not ended."""

    cluster: str
    """Slurm or Ray."""
    id: str
    state: str
    """For example PENDING or RUNNING."""
    reason: str = ""
    """Why it waits, or the nodes on which it runs."""
    is_ending: bool = False
    """True if its processes are being ended."""

    def __str__(self) -> str:
        return f"{self.cluster} job {self.id}: {self.state}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Ending:
    """How a job ended."""

    text: str
    """State, exit code, node and reason."""
    succeeded: bool = False
    """True if its command succeeded; on a shared file system its artifact may become visible later."""
    may_pass: bool = True
    """True if another attempt may succeed; False if somebody has cancelled the job."""
    never_began: bool = False
    """True if it left the queue without having begun, so that it can simply be submitted again."""


@dataclass(frozen=True)
class Request:
    """What a job runs, and what it needs."""

    stage: str
    command: Sequence[str]
    directory: Path
    """Working directory."""
    nodes: int
    resources: Mapping[str, float]
    """Ray's resources; Slurm's are in launcher.sbatch and launcher.slurm."""
    environment: Mapping[str, str]
    """The submitter's environment without grpoflow's secrets."""


class Queue(ABC):
    """Jobs that build one artifact; at most one of them is alive unless two processes submit at once."""

    cluster: ClassVar[str]
    """Name of the cluster's software, for messages."""
    lost_by: ClassVar[str]
    """What makes the cluster forget jobs, for messages."""

    def __init__(self, name: str, logs: Path, launcher: LauncherConfig) -> None:
        """Set the name of the jobs, and the directory of their files, which all nodes share."""
        self.name, self.logs, self.launcher = name, logs, launcher

    def job(self, number: str) -> str:
        """Return a job's id with the name of the cluster's software."""
        return f"{self.cluster} job {number}"

    @abstractmethod
    def log(self, number: str) -> Path:
        """Return the file with the output of a job."""

    @abstractmethod
    def submit(self, request: Request) -> str:
        """Submit a job; return its id.

        Raises:
            Unanswered: it is not known whether the job was submitted: ask `find` before the next attempt.
            LaunchError: the cluster refuses the job.
        """

    @abstractmethod
    def find(self) -> Status | None:
        """Return the job that has not ended; None if there is none.

        Raises:
            Unanswered: the controller does not answer.
        """

    @abstractmethod
    def look(self, status: Status) -> Status | None:
        """Return the present status of a job that was found or submitted; None if it has ended.

        Raises:
            Unanswered: the controller does not answer.
        """

    @abstractmethod
    def cancel(self, status: Status) -> None:
        """Cancel a job: its processes get SIGTERM, and SIGKILL after a time in which they write a checkpoint.

        Raises:
            Unanswered: the controller does not answer.
        """

    @abstractmethod
    def ending(self, number: str) -> Ending | None:
        """Return how a job ended; None if the cluster does not know it any more.

        Raises:
            Unanswered: the controller does not answer.
        """
