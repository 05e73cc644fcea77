"""Slurm batch script that runs the start scripts of the nodes; it also works by hand: `sbatch job.sbatch`."""

import hashlib
import shlex
from pathlib import Path

from launch.config import LauncherConfig
from launch.nodes.fan_out import PORTS

JOB_PORT = f"$(({PORTS[0]} + SLURM_JOB_ID % {PORTS[1] - PORTS[0]}))"
"""Bash expression for a port that jobs of one machine do not share."""
SUBMIT = r"""
name=$1 logs=$2
command -v sbatch >/dev/null || { echo "error: sbatch: not found; launcher=slurm needs Slurm here"; exit 1; }
state() { squeue -h -o %T -u "$(id -un)" -n "$name" 2>/dev/null; }
scancel -u "$(id -un)" -n "$name"  # jobs of an earlier attempt
while now=$(state) && [ -n "$now" ]; do sleep 1; done
id=$(sbatch --parsable --job-name="$name" "$0") || exit 1  # SBATCH_JOB_NAME would count more than the script
id=${id%%;*} last=
trap 'scancel "$id"; exit 143' TERM INT HUP
while :; do  # poll, because a signal cannot cancel sbatch --wait
  if now=$(state); then  # ignore a squeue that fails
    [ -n "$now" ] || break
    [ "$now" = "$last" ] || echo "Slurm job $id: $now"
    last=$now
  fi
  [ "$last" = RUNNING ] || touch -c /dev/stdout  # a job in the queue does not count as hung
  sleep 1 & wait $!
done
end=$(scontrol show job "$id" | tr " " "\n" | sed -n "s/^JobState=//p")
echo "Slurm job $id: $end"
[ "$end" = COMPLETED ] && exit 0
tail -n 20 "$logs/slurm-$id.log"
exit 1
"""
"""Submits the job SCRIPT NAME LOGS and waits for its end. A signal or the next attempt cancels it."""


def batch_script(
    nodes: int, directory: Path, logs: Path, launcher: LauncherConfig, requeue: bool = False
) -> str:
    """Return a batch script with one task per node; the workers connect to the first node.

    With `requeue` Slurm starts the job again after preemption or a lost node; the scripts resume the run.
    """
    script = f"exec bash {shlex.quote(str(directory))}/node_$SLURM_NODEID.sh"
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={job_name(directory)}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --{'' if requeue else 'no-'}requeue",
        "#SBATCH --open-mode=append",
        f"#SBATCH {shlex.quote(f'--output={logs}/slurm-%j.log')}",
        *[f"#SBATCH {option}" for option in launcher.sbatch],
        "set -eu",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "MASTER_ADDR=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')",
        f"export MASTER_ADDR MASTER_PORT={launcher.master_port or JOB_PORT}",
        f"export LOG_DIR={shlex.quote(str(logs))}",
        f"export SHARED={shlex.quote(str(directory))}/.shared-$SLURM_JOB_ID",
        'touch "$SHARED"',
        "trap 'rm -f \"$SHARED\"' EXIT",
        f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(script + ' check')}",
        f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(script)}",
    ]
    return "\n".join(lines) + "\n"


def job_name(directory: Path) -> str:
    """Return the job name of an artifact in a store; a new attempt cancels jobs with the same name."""
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:8]
    return f"grpoflow-{directory.parent.name}-{digest}"
