"""Typed launcher settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

LOOPBACK = frozenset({"127.0.0.1", "localhost"})
"""Values of launcher.master_addr that stand for the address of the first node."""


@dataclass(frozen=True)
class LauncherConfig:
    """Settings for starting and ending processes. They change no result and enter no fingerprint."""

    name: Literal["local", "ssh", "slurm", "ray"]
    """local: processes on this machine, under msrun if there are several workers. ssh, slurm: an engine's
    workers on machines that share the store's file system; all other stages stay on this machine, except
    those of launcher.stages. ray: the stages of launcher.stages as jobs of an existing Ray cluster."""
    master_addr: str
    """Address where the workers of a job connect; loopback unless several nodes take part."""
    master_port: Annotated[int, Ge(1024), Le(65535)] | None
    """Port where they connect; None for any free one."""
    hosts: tuple[str, ...]
    """ssh: the machines, in the order of the workers."""
    ssh: tuple[str, ...]
    """The ssh command with its options."""
    sbatch: tuple[str, ...]
    """slurm: more options of the batch scripts, for example [--partition=npu]."""
    stages: str | tuple[str, ...]
    """slurm, ray: stages that run completely in jobs of their own, for example [tokenize,split,sft]; all:
    every stage, with ray the default. This machine only waits for them. []: with slurm, only the workers of
    outside engines run in jobs."""
    slurm: Mapping[str, tuple[str, ...]]
    """slurm: stage of launcher.stages -> more options of its job, which count more than launcher.sbatch, for
    example launcher.slurm.tokenize=[--partition=cpu]."""
    ray_address: str | None
    """ray: http://HOST:8265, the dashboard of the cluster. A token is taken from RAY_AUTH_TOKEN, or from the
    file RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token."""
    ray: Mapping[str, Mapping[str, float] | None]
    """ray: stage -> resources that its job reserves on one node, for example
    launcher.ray.evaluate={NPU: 1, CPU: 8}; memory in bytes. null: the cards of a stage that computes (NPU or
    GPU), the driver of an engine that connects to a cluster at engine.ray_address nothing, any other stage a
    CPU. {}: nothing; Ray then runs the job on its head node."""
    notice_s: Annotated[int, Ge(0), Le(65535)]
    """slurm: seconds before the time limit at which a stage's job is asked to write a checkpoint, and then
    queued again to resume from it; 0: it ends at the limit. ray: seconds that a job which is stopped has to
    write one."""
    cards_per_node: Annotated[int, Ge(1)]
    """Cards of one machine; an engine with more workers takes several."""
    timeout_s: Annotated[float, Gt(0)] | None
    """Time limit of one stage, or of one of its attempts with launcher.retries; None for no limit."""
    retries: Annotated[int, Ge(0), Le(1000)]
    """How many times a stage is started again after a failure that it does not report itself: a killed
    process, a lost node, a hang, a time limit. It resumes from its last checkpoint."""
    grace_s: Annotated[float, Ge(0)]
    """Seconds between SIGTERM and SIGKILL when a stage is stopped."""

    @property
    def on_one_machine(self) -> bool:
        """True if all workers of an engine run on the machine of their stage."""
        return self.name in ("local", "ray")

    @property
    def has_queue(self) -> bool:
        """True if stages can run as jobs of their own."""
        return self.name in ("slurm", "ray")

    def runs_as_job(self, stage: str) -> bool:
        """Return True if a stage runs in a job of its own."""
        return self.has_queue and (self.stages == "all" or stage in self.stages)
