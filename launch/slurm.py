"""A Slurm batch script around the nodes' start scripts. It works without us: `sbatch job.sbatch`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

BASE_PORT, PORTS = 20000, 10000


def batch_script(nodes: int, directory: Path, logs: Path, options: Sequence[str]) -> str:
    """One task per node; the first node of the allocation is where the workers meet.

    Slurm must not requeue it: it would begin anew. To go on, meta.json must be repaired, YAML files and
    scripts rendered with other paths, and steps counted on, which this script cannot do alone: the same
    `grpoflow run` does it.

    Args:
        nodes: number of nodes.
        directory: holds node_K.sh.
        logs: receives msrun's logs and Slurm's own.
        options: more #SBATCH options, for example --partition=npu.
    """
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={job_name(directory)}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --no-requeue",
        f"#SBATCH --output={logs}/slurm-%j.log",
        *[f"#SBATCH {option}" for option in options],
        "set -eu",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "MASTER_ADDR=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')",
        f"MASTER_PORT=$(({BASE_PORT} + SLURM_JOB_ID % {PORTS}))  # another one for each job on a node",
        f"export MASTER_ADDR MASTER_PORT LOG_DIR={shlex.quote(str(logs))}",
        "srun --kill-on-bad-exit=1 bash -c "
        + shlex.quote(f"exec bash {shlex.quote(str(directory))}/node_$SLURM_NODEID.sh"),
    ]
    return "\n".join(lines) + "\n"


def command(script: Path) -> list[str]:
    """Submit and wait for the end; a signal cancels the job, and so does the next attempt if nobody could."""
    steps = (
        'waiting() { squeue -h -o %i -u "$(id -un)" -n "$1" 2>/dev/null | grep -q .; }; '
        'scancel -u "$(id -un)" -n "$1"; while waiting "$1"; do sleep 1; done; '
        'id=$(sbatch --parsable "$0") || exit 1; id=${id%%;*}; echo "Slurm job $id"; '
        "trap 'scancel \"$id\"; exit 143' TERM INT HUP; "
        # sbatch --wait can't be cancelled by a signal, so the state is asked for.
        'while waiting "$1"; do sleep 1 & wait $!; done; '
        'state=$(scontrol show job "$id" | tr " " "\\n" | sed -n "s/^JobState=//p"); '
        'echo "Slurm job $id: $state"; [ "$state" = COMPLETED ]'
    )
    return ["bash", "-c", steps, str(script), job_name(script.parent)]


def job_name(directory: Path) -> str:
    """One per artifact: two attempts at the same must not run at once."""
    return f"grpoflow-{directory.parent.name}"
