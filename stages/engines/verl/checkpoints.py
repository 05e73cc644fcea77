"""verl's checkpoints: CHECKPOINTS/global_step_N and a tracker file.

The names of shards contain the number of workers; verl resumes with this number only. Shards are pickles of
torch, which are not read. data.pt is written after all of them.
Source: verl 0.9.1, trainer/ppo/v1/trainer_base.py (_save_checkpoint, _load_checkpoint),
utils/checkpoint/fsdp_checkpoint_manager.py.
"""

import zipfile
from functools import partial
from pathlib import Path

from stages.engines.tracked_checkpoints import TrackedCheckpoints
from stages.engines.verl.job import Job

ACTOR = "actor"
PARTS = ("model", "optim", "extra_state")


def of_run(root: Path, job: Job) -> TrackedCheckpoints:
    """Return the checkpoints of a run."""
    return TrackedCheckpoints(root, "global_step_{}", partial(defect, job))


def defect(job: Job, directory: Path) -> str | None:
    """Return what is missing or truncated in a step's checkpoint; None if it is complete."""
    if not (directory / "data.pt").is_file():
        return "data.pt is missing"
    if job.engine.strategy == "megatron":  # its shards have other names, and one directory for all
        return None if any((directory / ACTOR).iterdir()) else "it is empty"
    names = [f"{part}_world_size_{job.cards}_rank_{rank}.pt" for rank in range(job.cards) for part in PARTS]
    for file in (directory / ACTOR / name for name in names):
        if not file.is_file():
            saved = sorted(path.name for path in file.parent.glob(f"{PARTS[0]}_world_size_*"))
            hint = f"; it was saved as {saved[0]}" if saved else ""
            return f"{file.name} is missing{hint}"
        if not zipfile.is_zipfile(file):
            return f"{file.name} is truncated"
    return None
