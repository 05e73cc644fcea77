"""A Slurm batch script around the nodes' start scripts. It works without us: `sbatch job.sbatch`."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from launch.nodes.fan_out import FREE_PORT

BASE_PORT, PORTS = 20000, 10000
"""Where a node without python3 can't look for a free port: another one for each job on it."""
SUBMIT = r"""
name=$1 logs=$2
command -v sbatch >/dev/null || { echo "error: sbatch: not found; launcher=slurm needs Slurm here"; exit 1; }
state() { squeue -h -o %T -u "$(id -un)" -n "$name" 2>/dev/null; }
scancel -u "$(id -un)" -n "$name"  # what an earlier attempt left
while now=$(state) && [ -n "$now" ]; do sleep 1; done
id=$(sbatch --parsable "$0") || exit 1
id=${id%%;*} last=
trap 'scancel "$id"; exit 143' TERM INT HUP
while :; do  # sbatch --wait can't be cancelled by a signal, so the state is asked for
  if now=$(state); then  # a squeue that fails says nothing about the job
    [ -n "$now" ] || break
    [ "$now" = "$last" ] || echo "Slurm job $id: $now"
    last=$now
  fi
  [ "$last" = RUNNING ] || touch -c /dev/stdout  # who waits in the queue does not hang
  sleep 1 & wait $!
done
end=$(scontrol show job "$id" | tr " " "\n" | sed -n "s/^JobState=//p")
echo "Slurm job $id: $end"
[ "$end" = COMPLETED ] && exit 0
tail -n 20 "$logs/slurm-$id.log"
exit 1
"""
"""Submit and wait for the end; a signal cancels the job, and so does the next attempt if nobody could."""


def batch_script(
    nodes: int, directory: Path, logs: Path, options: Sequence[str], requeue: bool = False
) -> str:
    """One task per node; the first node of the allocation is where the workers meet.

    Args:
        nodes: number of nodes.
        directory: holds node_K.sh.
        logs: receives msrun's logs and Slurm's own.
        options: more #SBATCH options, for example --partition=npu.
        requeue: Slurm may start it again (preemption, a lost node, scontrol requeue): the scripts
            find out at every start what to go on from.
    """
    script = f"d={shlex.quote(str(directory))}; f=$d/node_$SLURM_NODEID.sh; "
    run, start = "srun --kill-on-bad-exit=1 bash -c", 'exec bash "$f"'
    look = '[ -r "$f" ] || { echo "error: node $HOSTNAME: $d: must be one directory for all nodes; choose '
    look += 'store= on a file system that they share" >&2; exit 1; }; '
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={job_name(directory)}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --{'' if requeue else 'no-'}requeue",
        "#SBATCH --open-mode=append",
        f"#SBATCH --output={logs}/slurm-%j.log",
        *[f"#SBATCH {option}" for option in options],
        "set -eu",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "MASTER_ADDR=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')",
        f"free='{FREE_PORT}'",
        f'MASTER_PORT=$(python3 -c "$free" 2>/dev/null || echo $(({BASE_PORT} + SLURM_JOB_ID % {PORTS})))',
        f"export MASTER_ADDR MASTER_PORT LOG_DIR={shlex.quote(str(logs))}",
        f"export SHARED={shlex.quote(str(directory))}/.shared-$SLURM_JOB_ID",
        'touch "$SHARED"',
        "trap 'rm -f \"$SHARED\"' EXIT",
        f"{run} {shlex.quote(script + look + start + ' check')}",
        f"{run} {shlex.quote(script + start)}",
    ]
    return "\n".join(lines) + "\n"


def command(script: Path, logs: Path) -> list[str]:
    """What SUBMIT runs as, see there."""
    return ["bash", "-c", SUBMIT, str(script), job_name(script.parent), str(logs)]


def job_name(directory: Path) -> str:
    """One per artifact: two attempts at the same must not run at once."""
    return f"grpoflow-{directory.parent.name}"
