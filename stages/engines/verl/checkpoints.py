"""verl's checkpoints: CHECKPOINTS/global_step_N and a tracker file.

CHECKPOINTS/latest_checkpointed_iteration.txt holds N and is written after all shards. Their names contain
the number of workers; verl resumes with this number only. Shards are pickles of torch, which are not read.
Source: verl 0.9.1, trainer/ppo/v1/trainer_base.py (_save_checkpoint, _load_checkpoint),
utils/checkpoint/fsdp_checkpoint_manager.py.
"""

import re
import shutil
import zipfile
from pathlib import Path

from stages.engines.verl.job import Job

TRACKER = "latest_checkpointed_iteration.txt"
ACTOR = "actor"
PARTS = ("model", "optim", "extra_state")
HUGGING_FACE = "huggingface"
_NAME = re.compile(r"global_step_(\d+)")


def directory(root: Path, step: int) -> Path:
    """Return the directory of one step."""
    return root / f"global_step_{step}"


def tracked(root: Path) -> int | None:
    """Return the step that the tracker names; None without a readable tracker."""
    try:
        text = (root / TRACKER).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None


def defect(root: Path, step: int, job: Job) -> str | None:
    """Return what is missing or truncated in a step's checkpoint; None if it is complete."""
    actor = directory(root, step) / ACTOR
    if job.engine.strategy == "megatron":  # its shards have other names, and one directory for all
        return None if any(actor.iterdir()) else "it is empty"
    names = [f"{part}_world_size_{job.cards}_rank_{rank}.pt" for rank in range(job.cards) for part in PARTS]
    for file in (actor / name for name in names):
        if not file.is_file():
            saved = sorted(path.name for path in actor.glob(f"{PARTS[0]}_world_size_*"))
            hint = f"; it was saved as {saved[0]}" if saved else ""
            return f"{file.name} is missing{hint}"
        if not zipfile.is_zipfile(file):
            return f"{file.name} is truncated"
    return None if (directory(root, step) / "data.pt").is_file() else "data.pt is missing"


def prepare_resume(root: Path, job: Job) -> int | None:
    """Return the step to resume from, and correct the tracker; None if the run starts from the beginning.

    It is the tracker's step, unless this checkpoint is not complete; then the newest complete one before it.
    """
    last = tracked(root)
    complete = [
        step for step in steps(root) if last is not None and step <= last and defect(root, step, job) is None
    ]
    if not complete:
        shutil.rmtree(root, ignore_errors=True)
        return None
    for step in steps(root):
        if step > complete[-1]:
            shutil.rmtree(directory(root, step))
    temporary = root / f"{TRACKER}.new"
    temporary.write_text(str(complete[-1]), encoding="utf-8")
    temporary.replace(root / TRACKER)
    return complete[-1]


def prune(root: Path, keep: int) -> None:
    """Remove checkpoints before the newest `keep`, up to the tracker's.

    verl removes only those that the same process saved, and leaves their directories.
    """
    last = tracked(root)
    finished = [step for step in steps(root) if last is not None and step <= last]
    for step in finished[:-keep]:
        shutil.rmtree(directory(root, step))


def steps(root: Path) -> list[int]:
    """Return the steps that have a checkpoint directory, in order."""
    return sorted(
        int(match[1]) for path in root.glob("global_step_*") if (match := _NAME.fullmatch(path.name))
    )
